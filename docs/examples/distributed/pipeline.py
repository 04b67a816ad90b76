"""Train a small language model on pipeline stages: the losses are those of one process.

    python -m oneflow.distributed.launch --nproc_per_node 2 docs/examples/distributed/pipeline.py
    python docs/examples/distributed/pipeline.py

Each rank holds some of the layers. The first rank has the embedding, the last one the head and the loss. A batch
has 8 micro batches, and the schedule 1F1B keeps the ranks busy.
"""
import oneflow as flow
import oneflow.nn as nn

WORDS, WIDTH, LENGTH, LAYERS, MICRO_BATCHES, STEPS = 64, 32, 16, 4, 8, 10


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norms[1](x))


class Train(nn.Graph):
    def __init__(self, stages):
        super().__init__()
        flow.manual_seed(0)
        embedding, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.embedding, self.layers, self.head = embedding, layers, head
        self.last = stages[-1]
        stage_of = {module: i * len(stages) // LAYERS for i, module in enumerate(layers)}
        parameters = []
        for block, module in [
            (self.embedding, embedding),
            *zip(self.layers, layers),
            (self.head, head),
        ]:
            stage = stage_of.get(module, 0 if module is embedding else len(stages) - 1)
            module.to_global(stages[stage], flow.sbp.broadcast)
            block.to(nn.graph.GraphModule).set_stage(stage, stages[stage])
            parameters += module.parameters()
        self.config.set_gradient_accumulation_steps(MICRO_BATCHES)
        self.config.set_backend("aten")
        self.add_optimizer(flow.optim.AdamW(parameters, lr=0.01))

    def build(self, ids):
        h = self.embedding(ids[:, :-1])
        for layer in self.layers:
            h = layer(h)
        labels = ids[:, 1:].to_global(placement=self.last)
        loss = nn.functional.cross_entropy(self.head(h).reshape(-1, WORDS), labels.reshape(-1))
        loss.backward()
        return loss


def batch(step):
    """Return sequences that count upward, on all ranks."""
    generator = flow.Generator().manual_seed(step)
    starts = flow.randint(0, WORDS, (4 * MICRO_BATCHES, 1), generator=generator)
    ids = (starts + flow.arange(LENGTH + 1)) % WORDS
    return ids.to_global(flow.placement.all("cpu"), flow.sbp.broadcast)


def main():
    graph = Train([flow.placement("cpu", [rank]) for rank in range(flow.env.get_world_size())])
    losses = [graph(batch(step)).mean().item() for step in range(STEPS)]
    if flow.env.get_rank() == 0:
        print(f"world size {flow.env.get_world_size()}: losses", *(f"{loss:.4f}" for loss in losses))
    return losses


if __name__ == "__main__":
    main()
