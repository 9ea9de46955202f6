#!/usr/bin/env python3
"""Makes gpt2.safetensors and llama.safetensors: what PyTorch computes for two tiny models.

Run once by hand (python3 make_golden.py, with torch, numpy and safetensors); the tests read the files.
Everything is computed in float64 from initial weights that are float32 numbers. The models are written
with PyTorch's own operators and autograd; tensors carry this project's names and layouts: matrices that
are split by columns are stored (out, in), those split by rows (in, out).

A file holds, per tensor NAME: init.NAME, grad.NAME (of the first batch), final.NAME (after ten steps);
and batch.{token,target,pos,doc} (steps, B, T), losses and norms (steps) float64, logits (B, T, V) of the
first batch; bf16.grad and bf16.final, how far PyTorch itself is from that with bfloat16 weights and
activations and float32 masters: the worst tensor's distance over its norm (over how far it moved).
Metadata: the settings, and how far a float32 run of the same code is from float64.
"""
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

L, C, H, V, T, B, STEPS = 2, 32, 4, 65, 16, 3, 10
D = C // H
LR, BETAS, EPS, DECAY, CLIP, NORM_EPS, THETA = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 1e-5, 10000.0


def normal(rng, std, *shape, mean=0.0):
    return (mean + std * rng.standard_normal(shape)).astype(np.float32)


def make_weights(form, G, ffn):
    """Larger than a real initialisation, so that every gradient matters."""
    rng, w = np.random.default_rng(7), {}
    gpt2 = form == "gpt2"

    def norm(name):
        w[name + ".weight"] = normal(rng, 0.1, C, mean=1.0)
        if gpt2:
            w[name + ".bias"] = normal(rng, 0.1, C)

    w["embedding.wte"] = normal(rng, 0.5, V, C)
    if gpt2:
        w["embedding.wpe"] = normal(rng, 0.3, T, C)
    for i in range(L):
        p = f"block.{i}."
        norm(p + "norm1")
        for part, rows in (("q", H * D), ("k", G * D), ("v", G * D)):
            w[p + "attn.qkv." + part] = normal(rng, 0.2, rows, C)
            if gpt2:
                w[p + "attn.qkv_bias." + part] = normal(rng, 0.1, rows)
        w[p + "attn.out"] = normal(rng, 0.15, H * D, C)
        norm(p + "norm2")
        if gpt2:
            w[p + "attn.out_bias"] = normal(rng, 0.1, C)
            w[p + "mlp.fc"] = normal(rng, 0.2, ffn, C)
            w[p + "mlp.fc_bias"] = normal(rng, 0.1, ffn)
            w[p + "mlp.proj"] = normal(rng, 0.1, ffn, C)
            w[p + "mlp.proj_bias"] = normal(rng, 0.1, C)
        else:
            w[p + "mlp.gate_up.gate"] = normal(rng, 0.2, ffn, C)
            w[p + "mlp.gate_up.up"] = normal(rng, 0.2, ffn, C)
            w[p + "mlp.down"] = normal(rng, 0.1, ffn, C)
    norm("norm")
    if not gpt2:
        w["head.weight"] = normal(rng, 0.2, V, C)
    return w


def make_batches():
    """Sample 0 is one document, sample 1 two, sample 2 has targets that do not count."""
    rng = np.random.default_rng(11)
    text = rng.integers(0, V, (STEPS, B, T + 1), dtype=np.int32)
    token, target = text[..., :-1].copy(), text[..., 1:].copy()
    pos = np.broadcast_to(np.arange(T, dtype=np.int32), token.shape).copy()
    doc = np.zeros_like(token)
    cut = 7
    pos[:, 1, cut:] -= cut
    doc[:, 1, cut:] = cut
    target[:, 1, cut - 1] = -1
    target[:, 2, ::3] = -1
    return token, target, pos, doc


def rope(x, pos):
    """x (B, heads, T, D): pairs (i, i + D/2)."""
    half = D // 2
    freq = THETA ** (-torch.arange(half, dtype=x.dtype) * 2 / D)
    angle = pos[:, None, :, None].to(x.dtype) * freq
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def forward(form, G, w, token, pos, doc):
    gpt2 = form == "gpt2"

    def norm(name, x):
        if gpt2:
            return F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], NORM_EPS)
        return F.rms_norm(x, (C,), w[name + ".weight"], NORM_EPS)

    x = w["embedding.wte"][token]
    if gpt2:
        x = x + w["embedding.wpe"][pos]
    at = torch.arange(T)
    mask = (at[None, None, :] <= at[None, :, None]) & (at[None, None, :] >= doc[:, :, None])
    for i in range(L):
        p = f"block.{i}."
        h = norm(p + "norm1", x)
        parts = {}
        for part, heads in (("q", H), ("k", G), ("v", G)):
            y = F.linear(h, w[p + "attn.qkv." + part], w.get(p + "attn.qkv_bias." + part))
            parts[part] = y.view(B, T, heads, D).transpose(1, 2)
        q, k, v = parts["q"], parts["k"], parts["v"]
        if not gpt2:
            q, k = rope(q, pos), rope(k, pos)
        k, v = (t.repeat_interleave(H // G, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
        a = a.transpose(1, 2).reshape(B, T, H * D) @ w[p + "attn.out"]
        x = x + (a + w[p + "attn.out_bias"] if gpt2 else a)
        h = norm(p + "norm2", x)
        if gpt2:
            h = F.gelu(F.linear(h, w[p + "mlp.fc"], w[p + "mlp.fc_bias"]), approximate="tanh")
            x = x + h @ w[p + "mlp.proj"] + w[p + "mlp.proj_bias"]
        else:
            h = F.silu(F.linear(h, w[p + "mlp.gate_up.gate"])) * F.linear(h, w[p + "mlp.gate_up.up"])
            x = x + h @ w[p + "mlp.down"]
    x = norm("norm", x)
    return F.linear(x, w["embedding.wte"] if gpt2 else w["head.weight"])


def run(form, G, init, batches, dtype, compute=None):
    """compute: the type of weights and activations when it is not that of the masters."""
    masters = {k: torch.tensor(v, dtype=dtype, requires_grad=True) for k, v in init.items()}
    groups = [{"params": [p for p in masters.values() if p.ndim == 2], "weight_decay": DECAY},
              {"params": [p for p in masters.values() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    out = {"losses": [], "norms": []}
    for step in range(STEPS):
        token, target, pos, doc = (torch.tensor(b[step]).long() for b in batches)
        w = {k: p.to(compute or dtype) for k, p in masters.items()}
        logits = forward(form, G, w, token, pos, doc)
        loss = F.cross_entropy(logits.reshape(-1, V), target.reshape(-1), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().double().numpy()
            out["grad"] = {k: p.grad.numpy().copy() for k, p in masters.items()}
        out["losses"].append(loss.item())
        out["norms"].append(torch.nn.utils.clip_grad_norm_(masters.values(), CLIP).item())
        optimizer.step()
    out["final"] = {k: p.detach().numpy() for k, p in masters.items()}
    return out


def worst(a, b, origin):
    """Largest |a - b| / |b - origin| of all tensors; the key bias of GPT-2 has no gradient but rounding."""
    norm = np.linalg.norm
    return max(norm(a[k] - b[k]) / norm(b[k] - origin[k]) for k in a if "qkv_bias.k" not in k)


def make(form, G, ffn):
    init, batches = make_weights(form, G, ffn), make_batches()
    ref, single = (run(form, G, init, batches, t) for t in (torch.float64, torch.float32))
    tensors = {}
    for name in init:
        tensors["init." + name] = init[name]
        tensors["grad." + name] = ref["grad"][name].astype(np.float32)
        tensors["final." + name] = ref["final"][name].astype(np.float32)
    for name, value in zip(("token", "target", "pos", "doc"), batches):
        tensors["batch." + name] = value
    tensors["logits"] = ref["logits"].astype(np.float32)
    tensors["losses"], tensors["norms"] = np.array(ref["losses"]), np.array(ref["norms"])
    rough = run(form, G, init, batches, torch.float32, torch.bfloat16)
    zero = {k: 0 for k in init}
    tensors["bf16.grad"] = np.array([worst(rough["grad"], ref["grad"], zero)])
    tensors["bf16.final"] = np.array([worst(rough["final"], ref["final"], init)])
    distance = np.abs(np.array(single["losses"]) / tensors["losses"] - 1).max()
    meta = {"form": form, "torch": torch.__version__, "lr": LR, "betas": BETAS, "eps": EPS,
            "decay": DECAY, "clip": CLIP, "float32_loss_distance": float(distance)}
    path = pathlib.Path(__file__).parent / (form + ".safetensors")
    save_file(tensors, path, {k: json.dumps(v) for k, v in meta.items()})
    print(form, "losses", ref["losses"][0], ref["losses"][-1], "norms", ref["norms"][0],
          ref["norms"][-1], "float32 distance", distance, "bfloat16 distances",
          tensors["bf16.grad"], tensors["bf16.final"], "bytes", path.stat().st_size)


torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
make("gpt2", H, 4 * C)
make("llama", 2, 128)
