"""A model that says a chosen text: a Llama of one layer whose projections are zero, so that the next token follows from the last one
alone. A script is a list of pieces, and each piece is one token: it is cut wherever the test wants, in the middle of a character too.

    says = write_model(folder, {"hello": ["Hel", "lo", "\\0", b"\\xf0\\x9f", b"\\x99\\x82"]})

The first script is said after any prompt; a script NAME is said after a prompt that ends in its marker, "<|NAME|>" (says.markers["NAME"],
an added token; not a special one, since a chat takes those that a client writes as text). In a chat the marker comes from chat_template_kwargs={"script": "<|NAME|>"}, if the template is CHAT_TEMPLATE or ends in
SCRIPT_OF_CHAT. Behind its last piece a script says the end token, "<|end|>" (says.end).

Embeddings are codes of the *following* token, +1 and -1 in WIDTH dimensions, and the lm_head has each token's own code: the right token's
logit is WIDTH * SCALE, all others are far below, so sampling with a temperature of 1 says the same."""
import json
import random
import re
import struct
import types

WIDTH = 128
SCALE = 0.5
CONTEXT = 2048
# Tokens of one text need different spellings. Style "pieces" puts one of these marks before each; the decoder takes it off.
FIRST_MARK, LAST_MARK = 0xF0000, 0xFFFFD
BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
SCRIPT_OF_CHAT = "{%- if add_generation_prompt %}{{- script | default('') }}{%- endif %}"
CHAT_TEMPLATE = "{%- for m in messages %}{{- m.role ~ ': ' ~ m.content ~ '\\n' }}{%- endfor %}" + SCRIPT_OF_CHAT


def byte_alphabet():
    """The 256 characters of byte-level BPE, by byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(0x100 + i) for i, byte in enumerate(others)}}


def in_bytes(piece):
    return piece.encode() if isinstance(piece, str) else bytes(piece)


class Vocabulary:
    def __init__(self, style, added):
        self.style, self.alphabet = style, byte_alphabet()
        base = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))] if style == "pieces" else [self.alphabet[b] for b in range(256)]
        self.ids = {spelling: id for id, spelling in enumerate(base)}
        self.added, self.marks = {}, 0
        for content, special in added.items():
            self.add(content, special)

    def add(self, content, special):
        """Added tokens are in the model's vocabulary too: `tokenizers` gives those that aren't ids of its own."""
        self.added[content] = (self.new(content), special)
        return self.added[content][0]

    def new(self, spelling):
        if spelling in self.ids:
            raise ValueError(f"two tokens are spelled {spelling!r}: cut the script in another way, or use style='pieces'")
        self.ids[spelling] = len(self.ids)
        return self.ids[spelling]

    def marked(self, text):
        if BYTE.fullmatch(text) or any(FIRST_MARK <= ord(c) <= LAST_MARK for c in text):
            raise ValueError(f"no token of style 'pieces' can be {text!r}")
        return self.mark(text)

    def mark(self, spelling):
        self.marks += 1
        return self.new(chr(FIRST_MARK + self.marks) + spelling)

    def tokens(self, piece):
        """The ids of a piece: one, unless style 'pieces' spells bytes one by one: those that aren't whole characters, and a NUL, which our
        JSON takes in no key."""
        if isinstance(piece, str) and piece in self.added:
            return [self.added[piece][0]]
        raw = in_bytes(piece)
        if self.style == "bytes":
            return [self.ids[self.alphabet[raw[0]]] if len(raw) == 1 else self.new("".join(self.alphabet[byte] for byte in raw))]
        try:
            if b"\0" not in raw:
                return [self.marked(raw.decode())]
        except UnicodeDecodeError:
            pass
        return [self.mark(f"<0x{byte:02X}>") for byte in raw]

    def tokenizer(self):
        added = [{"id": id, "content": content, "special": special, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                 for content, (id, special) in self.added.items()]
        spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "post_processor": None}
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": self.ids, "merges": []}
        if self.style == "bytes":
            level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
            return {**spec, "pre_tokenizer": level, "decoder": level, "model": model}
        model.update(byte_fallback=True, unk_token="<unk>")
        marks = {"type": "Replace", "pattern": {"Regex": f"[{chr(FIRST_MARK)}-{chr(LAST_MARK)}]"}, "content": ""}
        return {**spec, "pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": [marks, {"type": "ByteFallback"}, {"type": "Fuse"}]},
                "model": model}


class Chain:
    """The token that follows each token."""

    def __init__(self, first, end):
        self.following, self.first, self.end = {}, first, end

    def follow(self, id, following):
        if self.following.setdefault(id, following) != following:
            raise ValueError(f"token {id} would be followed by two tokens: cut the script in another way")

    def say(self, before, ids):
        for one, following in zip([*before, *ids], [*ids, self.end]):
            self.follow(one, following)

    def after(self, id):
        return self.following.get(id, self.first)


def bf16(values):
    return struct.pack(f"<{len(values)}H", *(struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values))


def write_weights(path, count, chain):
    """Codes of +1 and -1. With zero projections the last layer's output is the embedding, and its norm leaves it as it is."""
    draw = random.Random(1)
    codes = [[1 if bit == "1" else -1 for bit in f"{draw.getrandbits(WIDTH):0{WIDTH}b}"] for _ in range(count)]
    plus, minus = bf16([1]), bf16([-1])
    scaled = {1: bf16([SCALE]), -1: bf16([-SCALE])}
    layer, tensors = "model.layers.0.", {}
    tensors["model.embed_tokens.weight"] = ([count, WIDTH], b"".join(plus if x > 0 else minus for id in range(count) for x in codes[chain.after(id)]))
    tensors["lm_head.weight"] = ([count, WIDTH], b"".join(scaled[x] for code in codes for x in code))
    for name in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"):
        tensors[name + ".weight"] = ([WIDTH], bf16([1] * WIDTH))
    for name, rows, columns in (("self_attn.q_proj", WIDTH, WIDTH), ("self_attn.k_proj", 16, WIDTH), ("self_attn.v_proj", 16, WIDTH),
                                ("self_attn.o_proj", WIDTH, WIDTH), ("mlp.gate_proj", 32, WIDTH), ("mlp.up_proj", 32, WIDTH),
                                ("mlp.down_proj", WIDTH, 32)):
        tensors[f"{layer}{name}.weight"] = ([rows, columns], bytes(2 * rows * columns))
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def config(count, end):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH, "head_dim": 16,
            "num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": count,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "attention_bias": False, "mlp_bias": False, "bos_token_id": None, "eos_token_id": end}


def merged(value, changes):
    """`changes` in place of members; a member that becomes ... is left out."""
    return {key: one for key, one in {**value, **(changes or {})}.items() if one is not ...}


def write_model(folder, scripts, style="pieces", added=None, chat_template=CHAT_TEMPLATE, config_json=None, generation_config=None,
                tokenizer_config=None):
    """Writes the folder of a model that says these scripts ({name: [piece, ...]}, a piece is text or bytes).

    style "pieces": a decoder with byte fallback; pieces may repeat; bytes that aren't whole characters, or hold a NUL, become one token each. Style "bytes":
    byte-level, as Llama 3 and Qwen; each piece is one token, and no piece but single bytes may come twice (a byte may be followed by one
    token only). added: {content: special} of more added tokens; a piece that is the content of one is that token. config_json,
    generation_config, tokenizer_config: members that differ; ... leaves one out.

    Returns what the tests compare with: .folder, .ids[name] (without the end), .texts[name] (bytes), .markers[name], .end, .end_text and
    .vocabulary (ids by spelling)."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary(style, added or {})
    end = vocabulary.add("<|end|>", True)
    markers = {name: f"<|{name}|>" for name in scripts}
    ids = {name: [id for piece in script for id in vocabulary.tokens(piece)] for name, script in scripts.items()}
    first = next(iter(ids.values()))
    chain = Chain(first[0] if first else end, end)
    for name, said in ids.items():
        chain.say([vocabulary.add(markers[name], False)], said)
    chain.follow(end, end)
    write_weights(folder / "model.safetensors", len(vocabulary.ids), chain)
    about = {"eos_token": "<|end|>", "chat_template": chat_template, "add_bos_token": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    files = {"config.json": merged(config(len(vocabulary.ids), end), config_json), "tokenizer.json": vocabulary.tokenizer(),
             "tokenizer_config.json": merged(about, tokenizer_config)}
    if generation_config is not None:
        files["generation_config.json"] = generation_config
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    return types.SimpleNamespace(folder=folder, ids=ids, texts={name: b"".join(map(in_bytes, script)) for name, script in scripts.items()},
                                 markers=markers, end=end, end_text="<|end|>", vocabulary=vocabulary.ids)


def distinct_pieces(text, draw=None, longest=6, seen=None):
    """Cuts text (bytes) into pieces for style "bytes": no piece comes twice, and none is a single byte, unless the text is one. `draw`
    (random.Random) chooses the lengths; without it pieces are as short as they can be. `seen`: a set that several scripts share."""
    pieces, seen, at = [], set() if seen is None else seen, 0
    while at < len(text):
        length = draw.randint(2, longest) if draw else 2
        while text[at:at + length] in seen and at + length < len(text):
            length += 1
        piece = text[at:at + length]
        while (piece in seen or len(piece) < 2) and pieces:  # at the end of the text: joined to the piece before
            before = pieces.pop()
            seen.discard(before)
            piece = before + piece
        pieces.append(piece)
        seen.add(piece)
        at += length
    return pieces
