"""A small GPT training program in the style of PyTorch programs: config, model, batches, schedule,
checkpoint, sampling.

It uses torch only. `test_gpt.py` also runs it with `import oneflow as torch`.
"""

import inspect
import math
import os
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    block_size: int = 16
    vocab_size: int = 31
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    dropout: float = 0.1
    bias: bool = False


class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, c, flash):
        super().__init__()
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(c.dropout), nn.Dropout(c.dropout)
        self.n_head, self.n_embd, self.dropout, self.flash = (
            c.n_head,
            c.n_embd,
            c.dropout,
            flash and hasattr(F, "scaled_dot_product_attention"),
        )
        if not self.flash:
            self.register_buffer(
                "mask",
                torch.tril(torch.ones(c.block_size, c.block_size)).view(1, 1, c.block_size, c.block_size),
            )

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        if self.flash:
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class Block(nn.Module):
    def __init__(self, c, flash):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = (
            LayerNorm(c.n_embd, c.bias),
            Attention(c, flash),
            LayerNorm(c.n_embd, c.bias),
        )
        self.mlp = nn.Sequential(
            nn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias),
            nn.GELU(),
            nn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias),
            nn.Dropout(c.dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c, flash=True):
        super().__init__()
        self.c = c
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(c.vocab_size, c.n_embd),
                wpe=nn.Embedding(c.block_size, c.n_embd),
                drop=nn.Dropout(c.dropout),
                h=nn.ModuleList([Block(c, flash) for _ in range(c.n_layer)]),
                ln_f=LayerNorm(c.n_embd, bias=c.bias),
            )
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * c.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def optimizer(self, weight_decay, lr, betas, device_type):
        params = {n: p for n, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and device_type == "cuda"
        return torch.optim.AdamW(groups, lr=lr, betas=betas, **(dict(fused=True) if fused else dict()))

    @torch.no_grad()
    def generate(self, idx, n, temperature=1.0, top_k=None):
        for _ in range(n):
            logits, _ = self(idx[:, -self.c.block_size :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


class Tokens(Dataset):
    def __init__(self, path, block):
        self.data, self.block = np.memmap(path, dtype=np.uint16, mode="r"), block

    def __len__(self):
        return len(self.data) - self.block - 1

    def __getitem__(self, i):
        piece = torch.from_numpy(self.data[i : i + self.block + 1].astype(np.int64))
        return piece[:-1], piece[1:]


def lr_at(step, lr, warmup, total, min_lr):
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    ratio = (step - warmup) / (total - warmup)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * min(ratio, 1.0))) * (lr - min_lr)


def main(folder, steps=12, accumulate=2, flash=True):
    torch.manual_seed(1337)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    device_type = "cuda" if "cuda" in device else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    context = (
        nullcontext()
        if device_type == "cpu"
        else torch.amp.autocast(device_type=device_type, dtype=torch.bfloat16)
    )
    tokens = (np.arange(4000) ** 2 % 31).astype(np.uint16)
    tokens.tofile(os.path.join(folder, "train.bin"))
    config = Config()
    model = GPT(config, flash).to(device)
    loader = DataLoader(
        Tokens(os.path.join(folder, "train.bin"), config.block_size),
        batch_size=4,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(2),
    )
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    optimizer = model.optimizer(0.1, 1e-2, (0.9, 0.95), device_type)
    raw = model.module if isinstance(model, DDP) else model
    losses, batches = [], iter(loader)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, 1e-2, 2, steps, 1e-3)
        for _ in range(accumulate):
            x, y = next(batches)
            with context:
                _, loss = model(x.to(device), y.to(device))
                loss = loss / accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append((loss.item() * accumulate, float(norm)))
        if step == steps // 2:
            path = os.path.join(folder, "ckpt.pt")
            torch.save(
                {
                    "model": raw.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "args": asdict(config),
                    "step": step,
                },
                path,
            )
            checkpoint = torch.load(path, map_location=device)
            model = GPT(Config(**checkpoint["args"]), flash).to(device)
            model.load_state_dict({k: v for k, v in checkpoint["model"].items()})
            optimizer = model.optimizer(0.1, 1e-2, (0.9, 0.95), device_type)
            optimizer.load_state_dict(checkpoint["optimizer"])
    model.eval()
    sample = model.generate(
        torch.zeros((1, 1), dtype=torch.long, device=device), 20, temperature=0.8, top_k=5
    )
    return {
        "losses": losses,
        "sample": sample[0].tolist(),
        "weights": {k: v.detach().clone() for k, v in model.state_dict().items()},
    }
