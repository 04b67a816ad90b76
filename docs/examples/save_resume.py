"""Save a training graph in the middle of training, and resume with new objects: the losses are the same.

    python docs/examples/save_resume.py
"""
import tempfile

import oneflow as flow
import oneflow.nn as nn


class Train(nn.Graph):
    def __init__(self, seed):
        super().__init__()
        flow.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
        self.config.set_backend("aten")
        optimizer = flow.optim.Adam(self.model.parameters(), lr=0.05)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5))

    def build(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss


def batches(count):
    random = flow.Generator().manual_seed(1)
    for _ in range(count):
        x = flow.randn(32, 8, generator=random)
        yield x, x.sum(1, keepdim=True)


def main(folder=None):
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or temporary
        data = list(batches(10))
        graph = Train(seed=0)
        for x, y in data[:5]:
            graph(x, y)
        flow.save(graph.state_dict(), f"{folder}/checkpoint")  # weights, optimizer, schedule
        straight = [graph(x, y).item() for x, y in data[5:]]

        again = Train(seed=7)  # other weights, until the state is loaded
        again.load_state_dict(flow.load(f"{folder}/checkpoint"))
        resumed = [again(x, y).item() for x, y in data[5:]]
    print("straight:", *(f"{v:.6f}" for v in straight))
    print("resumed: ", *(f"{v:.6f}" for v in resumed))
    print("same numbers:", straight == resumed)
    return straight, resumed


if __name__ == "__main__":
    main()
