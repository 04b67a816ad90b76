"""Reduced programs: LSTM text classifier, transformer translation, wide & deep."""

import math

import numpy as np
import pytest

import oneflow as flow
import oneflow.nn as nn


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(24, 2)

    def forward(self, words):
        out, (hidden, _) = self.lstm(self.embedding(words))
        assert hidden.shape == (4, words.shape[0], 12)
        return self.head(flow.cat([hidden[-2], hidden[-1]], dim=1) + out.mean(1) * 0.1)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_lstm_text_classifier(graph):
    flow.manual_seed(0)
    words = flow.randint(1, 20, (32, 7))
    labels = (words[:, 0] > 9).long()
    model, loss_fn = TextClassifier(), nn.CrossEntropyLoss()
    optimizer = flow.optim.Adam(model.parameters(), lr=0.02)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, words, labels):
            loss = loss_fn(self.model(words), labels)
            loss.backward()
            return loss

    train = Train()
    for _ in range(30):
        if graph:
            loss = train(words, labels)
        else:
            loss = loss_fn(model(words), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
    assert loss.item() < 0.3 and model.embedding.weight[0].abs().sum().item() == 0


class Translator(nn.Module):
    def __init__(self, vocabulary=16, width=16):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        places = flow.zeros((32, width))
        position = flow.arange(0, 32, dtype=flow.float).unsqueeze(1)
        rate = flow.exp(flow.arange(0, width, 2).to(flow.float) * (-math.log(10000.0) / width)).unsqueeze(0)
        places[:, 0::2], places[:, 1::2] = flow.sin(position * rate), flow.cos(position * rate)
        self.places = nn.Parameter(places.unsqueeze(0), requires_grad=False)
        self.transformer = nn.Transformer(
            d_model=width,
            nhead=2,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=32,
            dropout=0.0,
            batch_first=True,
        )
        self.head = nn.Linear(width, vocabulary)

    @staticmethod
    def future(size):
        mask = (flow.triu(flow.ones(size, size)) == 1).transpose(0, 1)
        return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)

    def forward(self, source, target):
        s, t = (
            self.source(source) + self.places[:, : source.size(1)],
            self.target(target) + self.places[:, : target.size(1)],
        )
        padding = source.eq(0)
        return self.head(
            self.transformer(
                s,
                t,
                tgt_mask=self.future(target.size(1)),
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
        )


def test_transformer_translation_in_graph_then_greedy_decoding():
    flow.manual_seed(0)
    source = flow.tensor(np.array([[2 + (i * 3 + j) % 14 for j in range(6)] + [0] for i in range(8)]))
    target = flow.cat([flow.ones(8, 1, dtype=flow.int64), source[:, :6].flip(1)], dim=1)
    model = Translator()
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    warm = flow.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda step: min((step + 1) / 5, 1.0))

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer, lr_sch=warm)

        def build(self, source, target):
            logits = self.model(source, target[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.reshape(-1, 16), target[:, 1:].reshape(-1), ignore_index=0, label_smoothing=0.02
            )
            loss.backward()
            return loss

    train = Train()
    losses = [train(source, target).item() for _ in range(60)]
    assert losses[-1] < 0.4 * losses[0]
    model.eval()
    decoded = flow.ones(8, 1, dtype=flow.int64)
    with flow.no_grad():
        for _ in range(6):
            decoded = flow.cat([decoded, model(source, decoded)[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert (decoded == target).float().mean().item() > 0.8


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Embedding(100, 1), nn.Embedding(200, 4)
        layers = []
        for i, o in ((4 * 3 + 5, 16), (16, 16)):
            layers += [nn.Linear(i, o), nn.ReLU(inplace=True), nn.Dropout(p=0.0)]
        self.mlp, self.score = nn.Sequential(*layers), nn.Linear(16, 1)
        for p in self.parameters():
            nn.init.normal_(p, std=0.1)

    def forward(self, dense, wide, deep):
        wide = self.wide(wide).view(-1, wide.shape[-1]).sum(dim=1, keepdim=True)
        deep = flow.cat([self.deep(deep).flatten(1), dense], dim=1)
        return wide + self.score(self.mlp(deep))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Adagrad"])
def test_wide_and_deep(optimizer):
    flow.manual_seed(0)
    wide, deep, dense = flow.randint(0, 100, (64, 2)), flow.randint(0, 200, (64, 3)), flow.randn(64, 5)
    labels = ((dense[:, :1] + (wide[:, :1] % 2)) > 0.5).float()
    model = WideAndDeep()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.loss = model, nn.BCEWithLogitsLoss(reduction="mean")
            self.add_optimizer(getattr(flow.optim, optimizer)(model.parameters(), lr=0.05))

        def build(self, *batch):
            *inputs, labels = batch
            logits = self.model(*inputs)
            loss = self.loss(logits, labels)
            loss.backward()
            return logits.sigmoid().to("cpu"), loss

    train = Train()
    losses = [train(dense, wide, deep, labels)[1].item() for _ in range(40)]
    scores = train(dense, wide, deep, labels)[0]
    assert losses[-1] < losses[0]
    if optimizer != "SGD":
        assert flow.roc_auc_score(labels, scores).item() > 0.9
