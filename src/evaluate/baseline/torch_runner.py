"""Times an expression over PyTorch tensors on behalf of warptree: one JSON object a line on stdin and on stdout.

It runs what it is told, checks nothing against a reference, and chooses nothing: outputs go to files for
the parent to judge, raw times go to the parent. The order of requests is
    open, then any of: check | prepare, sample…, finish | then the end of stdin.
"""

import json
import math
import os
import sys

# Whatever else writes to stdout goes to stderr, so that it cannot forge an answer.
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

MAX_NODES = 1024  # calls in one graph
WALK_NS = 200e6  # a walk round all sets takes no longer than about this
KEPT_BYTES = 8 << 30  # outputs that one graph keeps


def answer(**fields):
    ANSWERS.write(json.dumps(fields) + "\n")
    ANSWERS.flush()


def words(error):
    """The first lines of an error: torch's own can be pages."""
    text = "".join(str(error).splitlines(keepends=True)[:6]).strip()
    return f"{type(error).__name__}: {text}"[:2000]


class Problem:
    """A size: its input files, its output files and its scalars."""

    def __init__(self, told):
        self.buffers = told["buffers"]
        self.scalars = told["scalars"]

    def inputs(self):
        return [b for b in self.buffers if b["role"] == "input"]

    def outputs(self):
        return [b for b in self.buffers if b["role"] == "output"]


class Missing(Exception):
    """A package that is not here, and why it cannot be imported."""

    def __init__(self, package, why):
        super().__init__(why)
        self.package = package


class Runner:
    def __init__(self, told):
        try:
            import torch
        except ImportError as error:
            raise Missing("torch", words(error)) from error

        self.torch = torch
        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU here (torch.cuda.is_available() is False)")
        self.device = torch.device("cuda", told["device"])
        torch.cuda.set_device(self.device)
        ieee = told["math"] == "ieee"
        torch.backends.cuda.matmul.allow_tf32 = not ieee
        torch.backends.cudnn.allow_tf32 = not ieee
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = not ieee
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not ieee
        self.expression = told["expression"]
        self.graphs = None
        if told["library"] == "cudnn":
            try:
                from cudnn_graphs import Graphs
            except ImportError as error:
                raise Missing("cudnn", words(error)) from error
            self.graphs = Graphs(torch, ieee)
        self.operations = {}
        self.dtypes = {
            "f64": torch.float64,
            "f32": torch.float32,
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "i32": torch.int32,
            "u32": torch.uint32,
            "i64": torch.int64,
            "u64": torch.uint64,
            "u8": torch.uint8,
        }
        self.prepared = None

    def facts(self):
        torch = self.torch
        cudnn = torch.backends.cudnn.version()
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": cudnn,
            "gpu": torch.cuda.get_device_name(self.device),
        }

    def operation(self, problem, variant):
        """The expression as a function of the inputs; its outputs come as a tuple. One for each size."""
        key = json.dumps([variant, problem.scalars, [b["shape"] for b in problem.buffers]])
        if key not in self.operations:
            self.operations[key] = self.define(problem, variant)
        return self.operations[key]

    def define(self, problem, variant):
        torch = self.torch
        names = ", ".join(b["name"] for b in problem.inputs())
        scope = {"torch": torch, "F": torch.nn.functional, "math": math}
        if self.graphs is not None:
            scope.update(self.graphs.functions())
        scope.update(problem.scalars)
        text = f"def operation({names}):\n    return ({self.expression})\n"
        exec(compile(text, "<operation>", "exec"), scope)
        eager = scope["operation"]
        if variant in ("eager", "graph"):
            call = eager
        elif variant == "compiled":
            call = torch.compile(eager, dynamic=False)
        else:
            raise ValueError(f"no such variant: {variant}")

        def run(*inputs):
            made = call(*inputs)
            return tuple(made) if isinstance(made, (tuple, list)) else (made,)

        return run

    def load(self, buffer):
        torch = self.torch
        raw = torch.from_file(buffer["file"], shared=False, size=buffer["bytes"], dtype=torch.uint8)
        typed = raw.to(self.device).view(self.dtypes[buffer["dtype"]])
        return typed.reshape(buffer["shape"])

    def fitting(self, problem, inputs, made):
        """The outputs as real tensors of the declared types, or an error that says what does not fit."""
        torch = self.torch
        wanted = problem.outputs()
        if len(made) != len(wanted):
            raise ValueError(f"it gives {len(made)} outputs, the task has {len(wanted)}")
        given = {t.untyped_storage().data_ptr() for t in inputs}
        if any(t.untyped_storage().data_ptr() in given for t in made):
            raise ValueError("an output is a view of an input: nothing is computed")
        fitting = []
        for tensor, buffer in zip(made, wanted):
            if tensor.is_complex():
                tensor = torch.view_as_real(tensor)
            count = math.prod(buffer["shape"])
            dtype = self.dtypes[buffer["dtype"]]
            if tensor.dtype != dtype or tensor.numel() != count:
                raise ValueError(
                    f"{buffer['name']}: it gives {tensor.numel()} elements of {tensor.dtype}, "
                    f"the task wants {count} of {dtype}"
                )
            fitting.append(tensor)
        return fitting

    def check(self, told):
        """Runs once and writes the outputs to the files named."""
        torch = self.torch
        problem = Problem(told["problem"])
        run = self.operation(problem, told["variant"])
        inputs = [self.load(b) for b in problem.inputs()]
        made = self.fitting(problem, inputs, run(*inputs))
        torch.cuda.synchronize()
        for tensor, buffer in zip(made, problem.outputs()):
            raw = tensor.contiguous().reshape(-1).view(torch.uint8).cpu()
            out = torch.from_file(buffer["file"], shared=True, size=raw.numel(), dtype=torch.uint8)
            out.copy_(raw)
        del made, inputs
        torch.cuda.empty_cache()
        answer(checked=True)

    def prepare(self, told):
        """Captures graphs of calls over rotated sets, as the worker does for kernels."""
        torch = self.torch
        self.release()
        problem = Problem(told["problem"])
        run = self.operation(problem, told["variant"])
        first = [self.load(b) for b in problem.inputs()]
        for _ in range(3):
            self.fitting(problem, first, run(*first))
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(3):
            run(*first)
        end.record()
        torch.cuda.synchronize()
        rough_ns = max(start.elapsed_time(end) * 1e6 / 3, 1.0)
        set_bytes = max(sum(b["bytes"] for b in problem.buffers), 1)
        output_bytes = sum(b["bytes"] for b in problem.outputs())
        free, _ = torch.cuda.mem_get_info()
        wanted = -(-told["rotate_bytes"] // set_bytes)
        walkable = int(WALK_NS / rough_ns)
        affordable = int(free * 0.8 / set_bytes)
        wanted = max(2, min(wanted, told["max_sets"], walkable, max(affordable, 1)))
        most_calls = max(1, min(MAX_NODES, KEPT_BYTES // max(output_bytes, 1)))
        sets, calls, graph_count = shape(wanted, rough_ns, told["target_ns"], most_calls)
        inputs = [first]
        while len(inputs) < sets:
            inputs.append([rolled(torch, t, len(inputs)) for t in first])
        expected = [[t.clone() for t in run(*one)] for one in inputs]
        graphs, kept = [], []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run(*first)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        for graph in range(graph_count):
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                # kept, so that every call writes memory of its own
                for i in range(calls):
                    at = (graph * calls + i) % sets
                    kept.append((at, run(*inputs[at])))
            graphs.append(captured)
        for captured in graphs:
            captured.replay()
        torch.cuda.synchronize()
        self.prepared = {
            "graphs": graphs,
            "kept": kept,
            "expected": expected,
            "inputs": inputs,
            "calls": calls,
            "next": 0,
            "events": (start, end),
        }
        answer(
            prepared={
                "sets": sets,
                "calls": calls,
                "rotated_bytes": sets * set_bytes,
                "rough_ns": rough_ns,
            }
        )

    def sample(self, replays):
        """Nanoseconds per call of each of so many replays."""
        torch = self.torch
        state = self.prepared
        if state is None:
            raise RuntimeError("nothing is prepared")
        start, end = state["events"]
        nanos = []
        for _ in range(replays):
            graph = state["graphs"][state["next"]]
            state["next"] = (state["next"] + 1) % len(state["graphs"])
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            nanos.append(start.elapsed_time(end) * 1e6 / state["calls"])
        answer(sampled=nanos)

    def finish(self):
        """How many outputs of the timed calls are not those of an untimed call, by bits."""
        torch = self.torch
        state = self.prepared
        if state is None:
            raise RuntimeError("nothing is prepared")
        differing = 0
        for at, made in state["kept"]:
            for got, wanted in zip(made, state["expected"][at]):
                same = got.contiguous().view(-1).view(torch.uint8)
                differing += int(not torch.equal(same, wanted.contiguous().view(-1).view(torch.uint8)))
        total = sum(len(made) for _, made in state["kept"])
        self.release()
        answer(finished={"outputs": total, "differing": differing})

    def release(self):
        if self.prepared is not None:
            self.prepared = None
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()


def rolled(torch, tensor, index):
    """The same elements in other memory; floats are moved round, so that values meet other addresses."""
    if not tensor.is_floating_point():
        return tensor.clone()
    flat = tensor.reshape(-1)
    shift = index * 4352 // tensor.element_size() % max(flat.numel(), 1)
    return torch.roll(flat, shift).reshape(tensor.shape)


def shape(sets, rough_ns, target_ns, most_calls):
    """Sets, calls per graph and graphs, such that consecutive replays walk round all sets in order."""
    calls = int(min(max(math.ceil(target_ns / rough_ns), 1), most_calls))
    if calls >= sets:
        rounds = min(-(-calls // sets), max(most_calls // sets, 1))
        return sets, rounds * sets, 1
    graphs = -(-sets // calls)
    return graphs * calls, calls, graphs


def main():
    runner = None
    for line in sys.stdin:
        told = json.loads(line)
        request = told["request"]
        try:
            if request == "open":
                runner = Runner(told)
                answer(ready=runner.facts())
                continue
            with runner.torch.no_grad():
                if request == "check":
                    runner.check(told)
                elif request == "prepare":
                    runner.prepare(told)
                elif request == "sample":
                    runner.sample(told["replays"])
                elif request == "finish":
                    runner.finish()
                else:
                    raise ValueError(f"no such request: {request}")
        except Missing as error:
            answer(missing={"package": error.package, "why": str(error)})
        except Exception as error:
            answer(failed=words(error))


if __name__ == "__main__":
    main()
