from draftgate.cli.main import main

main()
