"""Task: small pictures, a convolutional network, and how it is trained and tested."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """One convolution and one layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.out = nn.Linear(4 * 6 * 6, 2)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).flatten(1))


def load_pictures(partition_id: int):
    """Pictures of 8 × 8 and their labels: of the second kind when the middle is bright."""
    source = torch.Generator().manual_seed(partition_id)
    labels = torch.randint(0, 2, (300,), generator=source)
    pictures = torch.rand((300, 1, 8, 8), generator=source)
    pictures[:, :, 2:6, 2:6] += 0.4 * labels[:, None, None, None]
    return pictures, labels


def load_data(partition_id: int, batch_size: int):
    """Loaders for training and testing."""
    pictures, labels = load_pictures(partition_id)
    train_set, test_set = (
        TensorDataset(pictures[:240], labels[:240]),
        TensorDataset(pictures[240:], labels[240:]),
    )
    return DataLoader(train_set, batch_size=batch_size, shuffle=True), DataLoader(test_set, batch_size=60)


def train(net, loader, epochs, lr):
    """Train in place; the mean loss of the last epoch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        total = 0.0
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(net(pictures), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / len(loader)


def test(net, loader):
    """Loss and accuracy."""
    with torch.no_grad():
        found = [
            (cross_entropy(net(x), y).item(), (net(x).argmax(1) == y).float().mean().item())
            for x, y in loader
        ]
    return tuple(sum(values) / len(found) for values in zip(*found, strict=True))
