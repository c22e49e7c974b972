"""Trains small tokenizers with the pipelines of well-known families and records what `tokenizers` does with hard strings.

Usage: make_tokenizers.py TEXT OUT [SEED]    Needs: tokenizers.
OUT/<name>.json is a tokenizer.json; OUT/<name>.vectors.json a list of {text, ids, ids_special, decoded}.
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EXTRA = ["Größe straße naïve café 漢字かな交じり文 русский текст العربية हिन्दी ไทย 한국어 " * 40,
         "def f(x):\n\treturn x**2  # 123 4567 89\n" * 200,
         "🙂👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈 é é ﬁ Ⅷ ① ½" * 60]
LEGACY_MERGES = ("gpt2", "qwen2", "llama2")  # "a b", as most published files have them, instead of ["a", "b"]


def byte_level(pattern=None, ignore_merges=False, nfc=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=1200, special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)


def sentencepiece_style(metaspace):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    return tokenizer, trainers.BpeTrainer(
        vocab_size=1500, special_tokens=special, limit_alphabet=400, show_progress=False, max_token_length=16)


def strings(seed):
    rnd = random.Random(seed)
    out = ["", " ", "  ", "\n", "\n\n\n", "\t", "\r\n", "a", " a", "a ", "Hello world",
           "Hello, y'all! How are you 😁 ?", "I'll we've THEY'RE it'S", "3 33 333 3333 33333",
           "ied 4 ½ months", "w048 7tuijk dsdfhu", "нещо на Български", "កាន់តែពិសេសអាចខលចេញ",
           "🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated)", "é vs é", "ﬁne ①",
           "<|im_start|>user\nhi<|im_end|>\n", "<s>not special?</s>", "<|endoftext", "a<|endoftext|>b",
           "\u0000\u0001\u007f", "\u200b\u2028\u3000x", "x" * 300, "ab" * 500, "the " * 200, "\n \n  \n   x",
           "a\u0301\u0302", "𝕏𐍈"]
    pools = ["abcdefghij ", "ABC'sdt ,.!?\n", "0123456789 ", " \t\n\r", "éèüßñ漢字かなрусالع",
             "🙂👩\u200d👧🏳️\ufe0f",
             # Assigned in Unicode 14 (Python 3.11), which every library here knows.
             "".join(chr(c) for c in range(1, 0x2000) if unicodedata.category(chr(c)) not in ("Cn", "Cs"))]
    for _ in range(400):
        out.append("".join(rnd.choice(rnd.choice(pools)) for _ in range(rnd.randint(1, 60))))
    return out


def write_tokenizer(tokenizer, path, legacy_merges):
    spec = json.loads(tokenizer.to_str())
    # Byte tokens are plain vocabulary in published files.
    spec["added_tokens"] = [token for token in spec["added_tokens"] if not token["content"].startswith("<0x")]
    if legacy_merges:
        spec["model"]["merges"] = [" ".join(merge) for merge in spec["model"]["merges"]]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file, ensure_ascii=False)


def vector(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {"text": text, "ids": ids, "ids_special": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False)}


def main(text, out, seed):
    with open(text, encoding="utf-8") as file:
        corpus = [file.read()] + EXTRA
    families = {"gpt2": byte_level(), "llama3": byte_level(LLAMA3, ignore_merges=True),
                "qwen2": byte_level(QWEN2, nfc=True),
                "tekken": byte_level(TEKKEN, ignore_merges=True), "llama2": sentencepiece_style(False),
                "mistral-metaspace": sentencepiece_style(True)}
    os.makedirs(out, exist_ok=True)
    for name, (tokenizer, trainer) in families.items():
        tokenizer.train_from_iterator((c[i:i + 2000] for c in corpus for i in range(0, len(c), 2000)), trainer)
        if name in ("llama2", "mistral-metaspace"):
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
        path = os.path.join(out, name + ".json")
        write_tokenizer(tokenizer, path, name in LEGACY_MERGES)
        tokenizer = Tokenizer.from_file(path)
        vectors = [vector(tokenizer, s) for s in strings(seed)]
        with open(os.path.join(out, name + ".vectors.json"), "w", encoding="ascii") as file:
            json.dump(vectors, file)
        print(name, tokenizer.get_vocab_size(), len(vectors), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 11)
