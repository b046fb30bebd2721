"""The rules of who may import whom, and what breaks them. `docs/architecture.md` draws them."""

from collections.abc import Iterable, Mapping

from import_graph import Import, find_cycle

PACKAGE = "transducer_gn"
# Each may import only those before it.
ORDER = (
    "common",
    "config",
    "lattice",
    "model",
    "data",
    "search",
    "recognition",
    "runtime",
    "export",
    "training",
    "evaluation",
    "reporting",
    "synthetic",
    "serving",
    "commands",
)
# Where a package may import even less than the order allows.
ONLY = {"config": {"common"}, "lattice": {"common"}, "data": {"common", "config"}}
# Packages that only these may import.
IMPORTERS = {"synthetic": {"commands"}, "serving": {"commands"}, "export": {"commands"}}
# The mathematics and the search work on tensors; they know nothing of files of audio, filter banks or terminals.
ON_TENSORS = {"lattice", "search"}
TENSORS = {"torch", "numpy", "k2", "fast_rnnt"}
NOT_ON_TENSORS = {"argparse", "curses", "os", "pathlib", "shutil", "sys", "termios", "tty", "wave"}
# Optional installs, and the only packages that may need them.
OPTIONAL = {
    "espeakng_loader": {"synthetic"},
    "matplotlib": {"reporting", "synthetic"},
    "onnx": {"export"},
    "onnxruntime": {"export", "runtime"},
    "tensorboard": {"training"},
    "torch.utils.tensorboard": {"training"},
    "websockets": {"serving"},
}
# The front door: `transducer_gn/__init__.py` opens these and nothing else.
FRONT_DOOR = {"config", "recognition", "runtime"}
# What runs without torch imports none of it, nor anything that does: see `tests/runtime/test_without_torch.py`.
WITHOUT_TORCH = {"runtime"}


def broken_rules(imports: Iterable[Import], standard_library: Iterable[str] = ()) -> list[str]:
    """One sentence for each import of `transducer_gn` that breaks a rule, and for a cycle of packages or modules."""
    imports = list(imports)
    library = set(standard_library)
    sentences = []
    for each in imports:
        ours = each.imported.partition(".")[0] == PACKAGE
        reason = _inside(each) if ours else _outside(layer_of(each.importer), each.imported, library)
        if reason:
            sentences.append(f"{each}: {reason}")
    return sentences + cycles(imports)


def layer_of(module: str) -> str:
    """The package of `transducer_gn` to which a module belongs; empty for `transducer_gn` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def _inside(each: Import) -> str:
    """Why one part may not import another; empty if it may."""
    importer, imported = layer_of(each.importer), layer_of(each.imported)
    if importer == imported:
        return ""
    if not importer:
        return "" if imported in FRONT_DOOR else f"the front door opens only {', '.join(sorted(FRONT_DOOR))}"
    if not imported:
        return "the front door is for users; import the module that is meant"
    for layer in (importer, imported):
        if layer not in ORDER:
            return f"{layer} has no place in the order of packages"
    if ORDER.index(imported) > ORDER.index(importer):
        return f"{importer} comes before {imported}"
    if importer in ONLY and imported not in ONLY[importer]:
        return f"{importer} may import only {', '.join(sorted(ONLY[importer]))}"
    if imported in IMPORTERS and importer not in IMPORTERS[imported]:
        return f"only {', '.join(sorted(IMPORTERS[imported]))} may import {imported}"
    return ""


def _outside(importer: str, imported: str, library: set[str]) -> str:
    """Why a part may not import something from outside; empty if it may."""
    top = imported.partition(".")[0]
    if importer in ON_TENSORS and (top in NOT_ON_TENSORS or top not in TENSORS | library):
        return f"{importer} works on tensors"
    if importer in WITHOUT_TORCH and top in ("torch", "torchaudio", "lhotse"):
        return f"{importer} runs without torch"
    for name, importers in OPTIONAL.items():
        if f"{imported}.".startswith(f"{name}.") and importer not in importers:
            return f"{name} is an optional install, only for {', '.join(sorted(importers))}"
    return ""


def cycles(imports: Iterable[Import]) -> list[str]:
    """A sentence for a cycle between packages and one for a cycle between modules, where there are such."""
    packages: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for each in imports:
        if not each.imported.startswith(PACKAGE):
            continue
        if each.importer != each.imported:
            modules.setdefault(each.importer, set()).add(each.imported)
        if layer_of(each.importer) != layer_of(each.imported):
            packages.setdefault(layer_of(each.importer), set()).add(layer_of(each.imported))
    return [*_cycle("packages", packages), *_cycle("modules", modules)]


def _cycle(kind: str, graph: Mapping[str, set[str]]) -> list[str]:
    """A sentence naming the cycle of a graph, if it has one."""
    cycle = find_cycle(graph)
    return [f"cycle of {kind}: {' -> '.join(name or PACKAGE for name in cycle)}"] if cycle else []
