"""Pipelines put together at random from the components that Baton supports, around a model of one of two families."""
import copy
import unicodedata

from tokenizers import pre_tokenizers

BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PATTERNS = [{"Regex": r"\d{1,3}"}, {"Regex": r"\s+"}, {"Regex": r"(?=[A-Z])"}, {"Regex": r"\p{L}+|\p{N}"}, {"Regex": r"\d*"}, {"Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\s+(?!\S)"},
            {"Regex": r"(?<=[a-z])[A-Z]|$"}, {"String": " "}, {"String": "a"}, {"String": "e."}, {"String": "\n"}, {"String": ""}]


def newer_punctuation():
    """Punctuation that the package's tables (Unicode 8) don't know."""
    split = pre_tokenizers.Punctuation("isolated")
    known = [chr(code) for code in range(0x80, 0x20000) if unicodedata.category(chr(code))[0] == "P"]
    found = [c for c in known if len(split.pre_tokenize_str("a" + c + "a")) != 3]
    assert len(found) < 300
    return found


def normalizer(rnd):
    kinds = [None, {"type": "NFC"}, {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
             {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "-"},
             {"type": "Replace", "pattern": {"String": "e"}, "content": ""}]
    if rnd.random() < 0.6:
        return copy.deepcopy(rnd.choice(kinds))
    return {"type": "Sequence", "normalizers": [copy.deepcopy(rnd.choice(kinds[1:])) for _ in range(rnd.randint(0, 3))]}


def metaspace(rnd):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rnd.choice(["always", "first", "never"]), "split": rnd.random() < 0.5}


def splitter(rnd):
    return rnd.choice([
        lambda: {"type": "Split", "pattern": copy.deepcopy(rnd.choice(PATTERNS)), "behavior": rnd.choice(BEHAVIORS), "invert": rnd.random() < 0.3},
        lambda: {"type": "Digits", "individual_digits": rnd.random() < 0.5},
        lambda: {"type": "Punctuation", "behavior": rnd.choice(BEHAVIORS)},
        lambda: {"type": rnd.choice(["Whitespace", "WhitespaceSplit"])},
    ])()


def pre_tokenizer(rnd, byte_level):
    parts = [splitter(rnd) for _ in range(rnd.choice([0, 0, 1, 1, 2, 3]))]
    if byte_level:
        parts.append({"type": "ByteLevel", "add_prefix_space": rnd.random() < 0.3, "trim_offsets": True, "use_regex": rnd.random() < 0.6})
    elif rnd.random() < 0.6:
        parts.append(metaspace(rnd))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}


def decoder(rnd, byte_level):
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": rnd.randint(0, 2), "stop": 0}
    if byte_level:
        return rnd.choice([{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, None,
                           {"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "Fuse"}]}])
    return rnd.choice([None, metaspace(rnd), replace, {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
                       {"type": "Sequence", "decoders": [metaspace(rnd), {"type": "ByteFallback"}]}, {"type": "Sequence", "decoders": [replace, strip, {"type": "Fuse"}]},
                       {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
                       {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": ""}, {"type": "Fuse"}]}])


def processor(rnd):
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return rnd.choice([None, template, byte_level, {"type": "Sequence", "processors": [byte_level, template]}, {"type": "BertProcessing", "sep": ["x", 2], "cls": ["y", 1]},
                       {"type": "RobertaProcessing", "sep": ["x", 2], "cls": ["y", 1], "trim_offsets": True, "add_prefix_space": True}])


def added_tokens(rnd, first_id):
    contents = rnd.sample(["<tool>", "word", " x", "the", "\n\n", "[MASK]", "é", "naïve café", "</s >", "🙂", "12", "▁a", "<|", "<|im", "a"], 6)
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [dict({"id": first_id + n, "content": content}, **{flag: rnd.random() < 0.4 for flag in flags}) for n, content in enumerate(contents)]


def drop_bytes(rnd, model, count):
    """Renames the tokens of `count` single bytes that no merge needs, where there are so many; some get names that byte_fallback looks for.
    Returns the bytes."""
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    needed = {part for left, right in merges for part in (left, right, left + right)}
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    spelled = {**{chr(byte): byte for byte in shown}, **{chr(0x100 + i): byte for i, byte in enumerate(others)}}
    free = [token for token in model["vocab"] if token in spelled and token not in needed]
    gone = rnd.sample(free, min(count, len(free)))
    names = [f"<0x{byte:02X}>" for byte in (0xC2, 0xC3, 0xC4, *range(0x80, 0xC0))]
    renamed = dict(zip(gone, rnd.sample(names, len(names)) + [f"gone{n}" for n in range(256)]))
    model["vocab"] = {renamed.get(token, token): id for token, id in model["vocab"].items()}
    return sorted(spelled[token] for token in gone)


def make(rnd, models):
    byte_level = rnd.random() < 0.4
    spec = copy.deepcopy(models["gpt2" if byte_level else "llama2"])
    model = spec["model"]
    model["ignore_merges"] = rnd.random() < 0.3
    if byte_level and rnd.random() < 0.5:
        drop_bytes(rnd, model, rnd.randint(1, 80))
        model.update(fuse_unk=rnd.random() < 0.5, byte_fallback=rnd.random() < 0.5, unk_token=rnd.choice(["<|endoftext|>", None]))
    if not byte_level:
        model.update(fuse_unk=rnd.random() < 0.5, byte_fallback=rnd.random() < 0.6, unk_token=rnd.choice(["<unk>", "<unk>", None]))
        if rnd.random() < 0.3:  # some bytes lack a token
            model["vocab"] = {(f"gone{n}" if token in ("<0xE2>", "<0xF0>") else token): n for token, n in model["vocab"].items()}
    known = set(model["vocab"])
    new = [token for token in added_tokens(rnd, 0) if token["content"] not in known]
    for n, token in enumerate(new):
        token["id"] = len(known) + n
    spec.update(normalizer=normalizer(rnd), pre_tokenizer=pre_tokenizer(rnd, byte_level), decoder=decoder(rnd, byte_level), post_processor=processor(rnd))
    spec["added_tokens"] += new
    return spec
