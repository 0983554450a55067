"""A pinned engine's own functions, taken out of its wheel and run on stubs: which layers reach the drafter.

Nothing is installed and nothing else of the engine runs. Hidden states are stood in for by their depth: 0 is
the embeddings, each layer adds 1, so the states that a target hands out name the layers whose input they are.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from draftgate.checkpoint.config import TOP_LEVEL, AuxIds, TargetShape

_WIDTH = 100  # hidden size of the stubs


@dataclass(frozen=True)
class Observed:
    """What the source did.

    Attributes:
        asked: how many layers it set out to capture.
        depths: the states that came out; None where it failed.
        width: how many states the drafter's fc is made for.
        graph_depths: the states that CUDA graphs hand out, where they are captured with other layers.
    """

    asked: int
    depths: tuple[int, ...] | None
    width: int | None
    graph_depths: tuple[int, ...] | None = None

    def usable(self, *, single: bool, graphs: bool) -> tuple[int, ...] | None:
        """The layers, where every asked one came, as many as fc takes, the same with and without graphs."""
        whole = self.depths is not None and len(self.depths) == self.asked == self.width
        if not whole or (len(self.depths or ()) == 1 and not single):
            return None
        return None if graphs and self.graph_depths not in (None, self.depths) else self.depths


class _Nothing:
    """Everything that does not matter here: falsy, callable, a context, with every attribute and item."""

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __getitem__(self, _: object) -> _Nothing:
        return self

    def __iter__(self) -> Iterator[_Nothing]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __gt__(self, _: object) -> bool:
        return False

    __lt__ = __gt__

    def __mul__(self, _: object) -> _Nothing:
        return self

    __rmul__ = __add__ = __radd__ = __mul__


NOTHING = _Nothing()


@dataclass(frozen=True)
class _State:
    """A hidden state, or the residual beside it."""

    depth: int
    shape: tuple[int, int] = (4, _WIDTH)
    device: str = "cpu"

    def __add__(self, other: object) -> _State:
        return self if isinstance(other, _State) else NotImplemented

    def clone(self) -> _State:
        return self


class _Sink(list[Any]):
    """Stands for SGLang's AuxHiddenStateList and AuxHiddenStatePacker (layers/aux_hidden_states.py)."""

    def __init__(self, asked: int | None = None) -> None:
        super().__init__()
        self._asked = asked

    def capture(self, state: _State, *, owned: bool = False) -> None:
        self.append(state)

    def finalize(self) -> _Sink:
        if len(self) != self._asked:
            raise RuntimeError(f"captured {len(self)} of {self._asked}")
        return self


class _Self:
    """An object with the attributes given, and nothing of note else."""

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return NOTHING


class Source:
    """The wheel of one engine version."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            self._names = set(archive.namelist())
        self._wheel = wheel

    def has(self, path: str) -> bool:
        return path in self._names

    def below(self, folder: str) -> list[str]:
        return sorted(name for name in self._names if name.startswith(folder) and name.endswith(".py"))

    @cache  # noqa: B019  one object per wheel and test session
    def text(self, path: str) -> str:
        with zipfile.ZipFile(self._wheel) as archive:
            return archive.read(path).decode()

    @cache  # noqa: B019
    def tree(self, path: str) -> ast.Module:
        return ast.parse(self.text(path))

    def function(self, path: str, name: str, **given: object) -> Callable[..., Any]:
        """``name`` or ``Class.name`` of a file, with names that are not given standing for nothing."""
        return _made(*self._code(path, name), given)

    def block(self, path: str, name: str, words: tuple[str, ...], **given: object) -> Callable[..., Any]:
        """The ``if`` of a function whose condition has all ``words``, as a function of ``self``."""
        return _made(*self._code(path, name, words), given)

    def initialised(self, path: str, name: str, **given: object) -> Callable[..., Any]:
        """A class without its bases, of which ``__init__`` alone is left."""
        return _made(*self._code(path, name, whole_class=True), given)

    @cache  # noqa: B019
    def _code(
        self, path: str, name: str, words: tuple[str, ...] = (), *, whole_class: bool = False
    ) -> tuple[CodeType, str, frozenset[str]]:
        """Code that defines it, its name, and the names that it reads."""
        node: ast.FunctionDef | ast.ClassDef
        if whole_class:
            init = self._node(path, f"{name}.__init__")
            node = ast.ClassDef(name, bases=[], keywords=[], body=[init], decorator_list=[])
        elif words:
            node = self._condition(path, name, words)
        else:
            node = self._node(path, name)
        node.decorator_list = []
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        module = ast.fix_missing_locations(ast.Module([node], []))
        flag = __future__.annotations.compiler_flag
        code = compile(module, path, "exec", flags=flag, dont_inherit=True)
        return code, node.name, frozenset(used)

    def _condition(self, path: str, name: str, words: tuple[str, ...]) -> ast.FunctionDef:
        found = [
            node
            for node in ast.walk(self._node(path, name))
            if isinstance(node, ast.If) and all(word in ast.unparse(node.test) for word in words)
        ]
        assert len(found) == 1, f"{path}: {name}: {len(found)} conditions with {words}"
        wrapper = ast.parse("def block(self): pass").body[0]
        assert isinstance(wrapper, ast.FunctionDef)
        wrapper.body = [found[0]]
        return wrapper

    def _node(self, path: str, name: str) -> ast.FunctionDef:
        body: list[ast.stmt] = self.tree(path).body
        *classes, last = name.split(".")
        for part in classes:
            body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == part)
        found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == last]
        assert found, f"{self._wheel.name}: {path} has no {name}"
        return found[-1]  # overloads come first


def _made(code: CodeType, name: str, used: frozenset[str], given: dict[str, object]) -> Callable[..., Any]:
    names: dict[str, Any] = {word: NOTHING for word in used if not hasattr(builtins, word)}
    names |= {"__name__": "source", **given}
    exec(code, names)
    made: Callable[..., Any] = names[name]
    return made


def config_of(ids: AuxIds) -> dict[str, Any]:
    """A drafter's config.json with these ids."""
    nested: dict[str, Any] = {"use_aux_hidden_state": ids.use_states}
    if ids.nested is not None:
        nested[TOP_LEVEL] = list(ids.nested)
    if ids.layer_ids is not None:
        nested["layer_ids"] = list(ids.layer_ids)
    config: dict[str, Any] = {"eagle_config": nested} if len(nested) > 1 else {}
    for key, value in ((TOP_LEVEL, ids.top_level), ("target_layer_ids", ids.target_layer_ids)):
        if value is not None:
            config[key] = list(value)
    if ids.num_states is not None:
        config["num_aux_hidden_states"] = ids.num_states
    return config


def _hf(ids: AuxIds) -> SimpleNamespace:
    return SimpleNamespace(
        **config_of(ids),
        architectures=["LlamaForCausalLMEagle3"],
        hidden_size=_WIDTH,
        vocab_size=8,
        draft_vocab_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        rms_norm_eps=1e-5,
    )


def _depths(result: object) -> tuple[int, ...]:
    """Of ``hidden_states, aux_hidden_states``; a bare state is no capture at all."""
    return tuple(state.depth for state in result[1]) if isinstance(result, tuple) else ()


_FIRST_AND_LAST = SimpleNamespace(is_first_rank=True, is_last_rank=True)


class VllmSource(Source):
    """vLLM: v1/worker for the ids, model_executor/models for the targets and drafters."""

    models = "vllm/model_executor/models"

    def __init__(self, wheel: Path, second_runner: frozenset[str]) -> None:
        """``second_runner`` are the architectures of targets that run on Model Runner V2."""
        super().__init__(wheel)
        self._second_runner = second_runner

    def observe(self, target: TargetShape, ids: AuxIds, drafter: str) -> Observed:
        config = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=_hf(ids)))
        if target.architecture in self._second_runner:
            path = "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
            asked = self.function(path, "get_eagle3_aux_layers_from_config")(config)
        else:
            path, name = "vllm/v1/worker/gpu_model_runner.py", "_get_eagle3_aux_layers_from_config"
            asked = self.function(path, f"GPUModelRunner.{name}")(_Self(speculative_config=config))
        model = self._model(target)
        if not asked:
            path, name = f"{self.models}/interfaces.py", "get_eagle3_default_aux_hidden_state_layers"
            asked = self.function(path, f"SupportsEagle3.{name}")(model)
        model.set_layers(asked)
        try:
            depths = _depths(model.forward())
        except TypeError:  # embeddings + no residual
            depths = None
        return Observed(len(asked), depths, self._width(drafter, ids))

    def _model(self, target: TargetShape) -> Any:
        interfaces, n = f"{self.models}/interfaces.py", target.num_hidden_layers

        def layer(_: object, hidden: _State, residual: object, *__: object) -> tuple[_State, _State]:
            return _State(hidden.depth + 1), _State(hidden.depth + 1)

        class Mixin:
            _set_aux_hidden_state_layers = self.function(
                interfaces, "EagleModelMixin._set_aux_hidden_state_layers"
            )
            _maybe_add_hidden_state = self.function(interfaces, "EagleModelMixin._maybe_add_hidden_state")

            def _cache_aux_pp_layout(self) -> None:
                """Pipeline parallelism, which is not asked here."""

            def __init__(self) -> None:
                self.layers, self.start_layer, self.end_layer = [layer] * n, 0, n
                self.config, self.hidden_size = SimpleNamespace(), _WIDTH

            def embed_input_ids(self, _: object) -> _State:
                return _State(0)

            def norm(self, hidden: _State, residual: _State) -> tuple[_State, _State]:
                return hidden, residual

            def collect_remote_aux_hidden_states(self, _: object) -> list[_State]:
                return []

        inner, llama = Mixin(), target.architecture == "LlamaForCausalLM"
        file, name = ("llama", "LlamaModel") if llama else ("deepseek_v2", "DeepseekV2Model")
        given = {"get_pp_group": lambda: _FIRST_AND_LAST, "islice": islice}
        forward = self.function(f"{self.models}/{file}.py", f"{name}.forward", **given)
        model = SimpleNamespace(model=inner, forward=lambda: forward(inner, NOTHING, _State(-1), None))
        setter = "set_aux_hidden_state_layers"
        if llama:
            put = self.function(interfaces, f"SupportsEagle3.{setter}", EagleModelMixin=Mixin)
        else:
            put = self.function(f"{self.models}/deepseek_v2.py", f"DeepseekV2ForCausalLM.{setter}")
        model.set_layers = model.set_aux_hidden_state_layers = lambda layers: put(model, layers)
        if not target.architecture.startswith("Kimi"):
            return model
        outer = SimpleNamespace(language_model=model, forward=model.forward)
        handed = self.function(f"{self.models}/kimi_k25.py", f"KimiK25ForConditionalGeneration.{setter}")
        outer.set_layers = lambda layers: handed(outer, layers)
        return outer

    def _width(self, drafter: str, ids: AuxIds) -> int | None:
        mla = drafter == "Eagle3DeepseekV2ForCausalLM"
        file, name = ("deepseek_eagle3", "DeepseekV2Eagle3Model") if mla else ("llama_eagle3", "LlamaModel")
        made: list[int] = []
        linear = {"ReplicatedLinear": lambda input_size, **_: made.append(input_size)}
        whole = SimpleNamespace(
            speculative_config=SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=_hf(ids))),
            model_config=NOTHING,
        )
        self.initialised(f"{self.models}/{file}.py", name, **linear)(vllm_config=whole)
        return made[0] // _WIDTH

    def drafters(self) -> set[str]:
        """Architectures that the registry maps to an EAGLE-3 drafter."""
        tree = self.tree(f"{self.models}/registry.py")
        pairs = [
            (key.value, value.elts[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
            and isinstance(value, ast.Tuple)
            and isinstance(value.elts[0], ast.Constant)
        ]
        return {str(name) for name, module in pairs if str(module).endswith("_eagle3")}


class SglangSource(Source):
    """SGLang: model_executor for the ids and the graphs, models for the targets and drafters."""

    models = "sglang/srt/models"

    def observe(self, target: TargetShape, ids: AuxIds, drafter: str) -> Observed:
        layer_ids, n = self._ids(ids), target.num_hidden_layers
        model, setter = self._model(target), self._setter(target)
        depths = self._run(model, setter, layer_ids)
        asked = len(model.model.layers_to_capture)
        graphs = None
        if self._graphs_set_defaults():
            model.model.layers_to_capture = []
            graphs = self._run(model, setter, None)
        assert model.config.num_hidden_layers == n
        return Observed(asked, depths, self._width(drafter, ids), graphs)

    def _run(self, model: Any, setter: Callable[..., None], layer_ids: object) -> tuple[int, ...] | None:
        setter(model, layer_ids)
        try:
            return _depths(model.forward())
        except (TypeError, RuntimeError):
            return None

    def _ids(self, ids: AuxIds) -> object:
        draft = SimpleNamespace(
            hf_config=_hf(ids),
            num_nextn_predict_layers=None,
            num_hidden_layers=1,
            num_attention_layers=1,
            is_hybrid_swa=False,
        )
        reader = SimpleNamespace(from_server_args=lambda *_, **__: draft)
        algorithm = SimpleNamespace(
            is_eagle3=lambda: True, is_eagle=lambda: True, is_standalone=lambda: False
        )
        newer = "sglang/srt/model_executor/model_runner_components/spec_aux_hidden_state.py"
        if self.has(newer):
            spec = SimpleNamespace(
                speculative_draft_model_path="drafter", speculative_draft_model_revision=None
            )
            config = SimpleNamespace()
            resolve = self.function(
                newer, "_resolve_eagle_aux_hidden_state", get_spec=lambda: spec, ModelConfig=reader
            )
            given = {
                "config": config,
                "server_args": spec,  # older versions ask it, newer ones get_spec()
                "model_config": NOTHING,
                "spec_algorithm": algorithm,
                "is_draft_worker": False,
            }
            resolve(**{name: given[name] for name in inspect.signature(resolve).parameters})
            return config.eagle_aux_hidden_state_layer_ids
        runner = _Self(
            spec_algorithm=algorithm, is_draft_worker=False, _build_model_config=lambda *_, **__: draft
        )
        words = ("is_eagle3()", "not self.is_draft_worker")
        path = "sglang/srt/model_executor/model_runner.py"
        self.block(path, "ModelRunner.__init__", words, ModelConfig=reader)(runner)
        return runner.eagle_aux_hidden_state_layer_ids

    @cache  # noqa: B019
    def _graphs_set_defaults(self) -> bool:
        """Whether the graph runner asks for the layers itself, without ids, right before it captures."""
        path = "sglang/srt/model_executor/cuda_graph_runner.py"
        if not self.has(path):
            return False
        calls = [node for node in ast.walk(self.tree(path)) if isinstance(node, ast.Call)]
        return any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "set_eagle3_layers_to_capture"
            and not call.args
            for call in calls
        )

    def _setter(self, target: TargetShape) -> Callable[..., None]:
        name = "set_eagle3_layers_to_capture"
        llama = target.architecture == "LlamaForCausalLM"
        file, class_ = ("llama", "LlamaForCausalLM") if llama else ("deepseek_v2", "DeepseekV2ForCausalLM")
        put = self.function(f"{self.models}/{file}.py", f"{class_}.{name}")
        if not target.architecture.startswith("Kimi"):
            return put
        handed = self.function(f"{self.models}/kimi_k25.py", f"KimiK25ForConditionalGeneration.{name}")

        def through(model: Any, layer_ids: object) -> None:
            model.set_eagle3_layers_to_capture = lambda ids: put(model, ids)
            handed(SimpleNamespace(language_model=model), layer_ids)

        return through

    def _model(self, target: TargetShape) -> Any:
        n, llama = target.num_hidden_layers, target.architecture == "LlamaForCausalLM"
        file, name = ("llama", "LlamaModel") if llama else ("deepseek_v2", "DeepseekV2Model")
        path = f"{self.models}/{file}.py"
        forward = self.function(
            path,
            f"{name}.forward",
            nullcontext=nullcontext,
            AuxHiddenStateList=_Sink,
            AuxHiddenStatePacker=_Sink,
        )
        # A layer's results as the loop unpacks them: newer versions carry the residual elsewhere.
        results = self._results(path, name)

        def layer(_: object, hidden: _State, *rest: object, **named: Any) -> object:
            capture = named.get("capture_output") or named.get("captured_last_layer_outputs")
            sink = named.get("captured_last_layer_outputs")
            if sink is not None:
                sink.append(_State(hidden.depth))
            elif capture is not None:
                capture(_State(hidden.depth))
            out = _State(hidden.depth + 1)
            return {1: out, 2: (out, out if llama else NOTHING), 3: (out, out, NOTHING)}[results]

        inner = _Self(
            pp_group=_FIRST_AND_LAST,
            embed_tokens=lambda _: _State(0),
            norm=lambda hidden, residual=None: (hidden, residual),
            layers=[layer] * n,
            start_layer=0,
            end_layer=n,
            layers_to_capture=[],
        )
        return SimpleNamespace(
            model=inner,
            pp_group=_FIRST_AND_LAST,
            config=SimpleNamespace(num_hidden_layers=n),
            forward=lambda: forward(inner, NOTHING, NOTHING, NOTHING),
        )

    @cache  # noqa: B019
    def _results(self, path: str, name: str) -> int:
        """How many values the loop over the layers takes from each."""
        for node in ast.walk(self._node(path, f"{name}.forward")):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and ast.unparse(node.value.func) in ("layer", "self.layers[i]")
            ):
                into = node.targets[0]
                return len(into.elts) if isinstance(into, ast.Tuple) else 1
        raise AssertionError(f"{path}: no call of a layer")

    def _width(self, drafter: str, ids: AuxIds) -> int | None:
        made: list[int] = []

        def linear(inputs: int, *_: object, **__: object) -> _Nothing:
            made.append(inputs)
            return NOTHING

        path = f"{self.models}/llama_eagle3.py"
        if drafter == "LlamaForCausalLMEagle3":
            torch = SimpleNamespace(nn=SimpleNamespace(Linear=linear))
            self.initialised(path, "LlamaModel", torch=torch)(_hf(ids))
            return made[0] // _WIDTH
        path = f"{self.models}/kimi_k25_eagle3.py"
        if not self.has(path):
            return None
        count = self.function(path, "_get_eagle_aux_layer_count")
        given = {"ColumnParallelLinear": linear, "nn": _Self(Linear=linear)}
        self.initialised(path, "Eagle3MLAModel", _get_eagle_aux_layer_count=count, **given)(_hf(ids))
        # The buffers between target and drafter are made from num_aux_hidden_states, where it is given.
        own = made[0] // _WIDTH
        return own if ids.num_states in (None, own) else None

    def drafters(self) -> set[str]:
        """Architectures that a module's EntryClass registers as an EAGLE-3 drafter."""
        files = [path for path in self.below(f"{self.models}/") if path.endswith("_eagle3.py")]
        entries = [
            element.id
            for path in files
            for node in self.tree(path).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass"
            for element in getattr(node.value, "elts", [node.value])
        ]
        return {name for name in entries if "Eagle3" in name}
