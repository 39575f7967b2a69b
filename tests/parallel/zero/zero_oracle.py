"""What ZeRO is compared with: one process of plain torch, on a network with a tied output, a layer
that is used twice, an unused parameter of another type, and parameters of the model itself."""

import torch
from torch import nn

STEPS, PADDING = 20, 0
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
}
RATES = {"adam": 0.02, "momentum": 0.05}


class Reader(nn.Module):
    """Tokens (B, n) to logits (B, n, 7)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.scale = nn.Parameter(torch.ones(()))
        self.embed = nn.Embedding(7, 4)
        self.walk = nn.GRU(4, 5, batch_first=True)
        self.twice = nn.Linear(5, 5)
        self.norm = nn.LayerNorm(5)
        self.down = nn.Linear(5, 4)
        self.long = nn.Linear(4, 4)
        self.double()
        self.unused = nn.Linear(3, 2)
        self.down.bias.requires_grad_(False)

    def forward(self, tokens):
        h = self.walk(self.embed(tokens))[0]
        h = self.norm(torch.tanh(self.twice(torch.tanh(self.twice(h)))))
        h = self.down(h)
        return nn.functional.linear(h + self.long(h), self.embed.weight) * self.scale


def loss(outputs, targets):
    return nn.functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING
    )


def weight(tokens):
    return (tokens != PADDING).sum()


def batches(steps=STEPS):
    """Rows of unequal length; each third batch is shorter than 5 ranks."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for step in range(steps):
        rows = 4 if step % 3 == 2 else 13
        tokens = torch.randint(1, 7, (rows, 6), generator=generator)
        lengths = torch.randint(1, 7, (rows, 1), generator=generator)
        tokens = torch.where(torch.arange(6) < lengths, tokens, PADDING)
        found.append((tokens, (7 - tokens) * (tokens != PADDING)))
    return found


def one_process(rule, clip=None, model=None, data=None, mean=loss):
    """Losses, parameters, and the optimizer's state by parameter and key."""
    model = Reader() if model is None else model
    optimizer, losses = OPTIMIZERS[rule](model.parameters()), []
    for inputs, targets in data or batches():
        model.zero_grad()
        value = mean(model(inputs), targets)
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(value.item())
    state = {
        f"{name}.{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
    }
    return losses, model.state_dict(), state
