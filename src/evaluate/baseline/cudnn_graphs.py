"""cuDNN's graph API as functions of PyTorch tensors, for operations that warptree times.

A graph is built once for its shapes, with the plan that cuDNN's own heuristics put first. Nothing is timed or
judged here.
"""

import math

import cudnn


class Graphs:
    def __init__(self, torch, ieee):
        self.torch = torch
        self.ieee = ieee
        self.handle = cudnn.create_handle()
        self.built = {}
        self.types = {
            torch.float32: cudnn.data_type.FLOAT,
            torch.float16: cudnn.data_type.HALF,
            torch.bfloat16: cudnn.data_type.BFLOAT16,
        }

    def functions(self):
        """What an operation may call."""
        return {
            "matmul": self.matmul,
            "attention": self.attention,
            "attention_backward": self.attention_backward,
        }

    def matmul(self, a, b):
        """a @ b, of two matrices or of two batches of them."""
        single = a.dim() == 2
        a, b = (t.unsqueeze(0) if single else t for t in (a, b))
        shape = [a.shape[0], a.shape[1], b.shape[2]]
        (c,) = self.run("matmul", [a, b], [(shape, a.dtype)], lambda graph, a, b: [graph.matmul(a, b)])
        return c.reshape(shape[1:]) if single else c

    def attention(self, q, k, v, causal=False):
        """Attention over [batch, head, position, element], and the log-sum-exp of each row."""
        scale = 1 / math.sqrt(q.shape[-1])

        def define(graph, q, k, v):
            return graph.sdpa(q=q, k=k, v=v, is_inference=False, attn_scale=scale, use_causal_mask=causal)

        rows = list(q.shape[:-1])
        outputs = [(rows + [v.shape[-1]], q.dtype), (rows + [1], self.torch.float32)]
        o, lse = self.run(f"attention {causal}", [q, k, v], outputs, define)
        return o, lse.reshape(rows)

    def attention_backward(self, q, k, v, o, do, lse, causal=False):
        """The gradients of q, k and v."""
        scale = 1 / math.sqrt(q.shape[-1])

        def define(graph, q, k, v, o, do, stats):
            return graph.sdpa_backward(
                q=q, k=k, v=v, o=o, dO=do, stats=stats, attn_scale=scale, use_causal_mask=causal
            )

        inputs = [q, k, v, o, do, lse.unsqueeze(-1)]
        outputs = [(list(t.shape), t.dtype) for t in (q, k, v)]
        return tuple(self.run(f"attention backward {causal}", inputs, outputs, define))

    def run(self, name, inputs, outputs, define):
        """Queues the graph of that name on the current stream; its outputs are new tensors."""
        torch = self.torch
        key = (name, *((tuple(t.shape), tuple(t.stride()), t.dtype) for t in inputs))
        made = [torch.empty(shape, dtype=dtype, device=inputs[0].device) for shape, dtype in outputs]
        if key not in self.built:
            self.built[key] = self.build(inputs, made, define)
        graph, ends, workspace = self.built[key]
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(dict(zip(ends, inputs + made)), workspace, handle=self.handle)
        return made

    def build(self, inputs, outputs, define):
        """The graph, its inputs and outputs in order, and its scratch memory: calls follow each other."""
        graph = cudnn.pygraph(
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self.handle,
        )
        sources = [graph.tensor_like(t) for t in inputs]
        results = list(define(graph, *sources))
        for result, tensor in zip(results, outputs):
            result.set_output(True).set_dim(list(tensor.shape)).set_stride(list(tensor.stride()))
            result.set_data_type(self.types[tensor.dtype])
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if self.ieee and inputs[0].dtype == self.torch.float32:
            # float32 through tensor cores is tf32
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
        graph.check_support()
        graph.build_plans()
        size = max(graph.get_workspace_size(), 1)
        workspace = self.torch.empty([size], dtype=self.torch.uint8, device=inputs[0].device)
        return graph, sources + results, workspace
