"""Q-learning with a replay buffer and a target network: an agent walks along a corridor to its goal.

    python docs/examples/steps/dqn.py
"""
import copy
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

import oneflow as flow

GAMMA, TAU, BATCH, CELLS = 0.95, 0.05, 32, 8


class Corridor:
    """The agent begins in cell 0, and each step costs 0.1; the last cell gives 1."""

    def reset(self):
        self.cell = self.age = 0
        return F.one_hot(torch.tensor(0), CELLS).float()

    def step(self, action):
        self.age += 1
        self.cell = max(self.cell + (1 if action == 1 else -1), 0)
        reached = self.cell == CELLS - 1
        return F.one_hot(torch.tensor(self.cell), CELLS).float(), 1.0 if reached else -0.1, reached or self.age == 40


def sample(transitions):
    states, actions, rewards, next_states, done = zip(*random.sample(transitions, BATCH))
    actions, rewards, done = torch.tensor(actions), torch.tensor(rewards), torch.tensor(done).float()
    return torch.stack(states), actions, rewards, torch.stack(next_states), done


def main(compile_step=flow.compile_step, steps=50):
    torch.manual_seed(0)
    random.seed(0)
    policy = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 2))
    target = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, amsgrad=True)

    def train_step(states, actions, rewards, next_states, done):
        values = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_values = target(next_states).max(1).values
        loss = F.smooth_l1_loss(values, rewards + GAMMA * (1 - done) * next_values)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        for slow, fast in zip(target.parameters(), policy.parameters()):
            slow.data.mul_(1 - TAU).add_(TAU * fast.data)
        return loss.item()

    train_step = compile_step(train_step)
    transitions, world, losses = deque(maxlen=1000), Corridor(), []
    state = world.reset()
    while len(losses) < steps:
        action = random.randrange(2) if random.random() < 0.3 else policy(state).argmax().item()
        next_state, reward, done = world.step(action)
        transitions.append((state, action, reward, next_state, done))
        state = world.reset() if done else next_state
        if len(transitions) >= BATCH:
            losses.append(train_step(*sample(transitions)))
    return losses, [*policy.parameters(), *target.parameters()]


if __name__ == "__main__":
    losses, _ = main()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
