"""nn.Graph for training: forward, backward, clipping, update and schedule as one program.

    python docs/examples/graph_training.py
"""
from eager_training import Net, loaders

import oneflow as flow
import oneflow.nn as nn


class TrainGraph(nn.Graph):
    def __init__(self, model, loss_fn, optimizer, schedule):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, images, labels):
        loss = self.loss_fn(self.model(images), labels)
        loss.backward()
        return loss


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, images):
        return self.model(images).argmax(1)


def main(epochs=4, backend="aten"):
    flow.manual_seed(0)
    train, test = loaders()
    model = Net()
    groups = [{"params": model.parameters(), "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}]
    optimizer = flow.optim.AdamW(groups, lr=1e-2, weight_decay=1e-4)
    cosine = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=epochs * len(train), alpha=0.01)
    schedule = flow.optim.lr_scheduler.WarmUpLR(cosine, warmup_factor=0.1, warmup_iters=10, warmup_method="linear")
    step, evaluate = TrainGraph(model, nn.CrossEntropyLoss(label_smoothing=0.05), optimizer, schedule), EvalGraph(model)
    for graph in (step, evaluate):
        graph.config.set_backend(backend)
    score = 0.0
    for epoch in range(epochs):
        model.train()
        losses = [step(images, labels).item() for images, labels in train]
        model.eval()
        hits = flow.cat([evaluate(images) == labels for images, labels in test])
        score = hits.float().mean().item()
        print(f"epoch {epoch}: lr {optimizer.param_groups[0]['lr']:.5f}, mean loss {sum(losses) / len(losses):.3f}, test accuracy {score:.1%}")
    return score


if __name__ == "__main__":
    main()
