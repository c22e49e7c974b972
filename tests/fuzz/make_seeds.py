#!/usr/bin/env python3
"""Writes the first seeds (seeds/TARGET/) and the dictionaries (dictionaries/TARGET.dict) of the fuzz targets, from the golden files
and from what is listed here. `run --minimize` adds what fuzzing found; this never deletes.

    python3 tests/fuzz/make_seeds.py"""
import hashlib
import json
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODELS = sorted((ROOT / "tests/golden/models").glob("*/config.json"))
TOKENIZERS = [ROOT / f"tests/golden/tokenizers/{name}.json" for name in ("gpt2", "llama3", "qwen2", "tekken", "llama2", "mistral-metaspace")]
TOKENIZERS.append(ROOT / "deploy/local/tiny-shakespeare/tokenizer.json")


def raw(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def seed(target, value):
    folder = HERE / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(raw(value)).hexdigest()).write_bytes(raw(value))


def words(target, values):
    """A dictionary of libFuzzer: a quoted string a line."""
    folder = HERE / "dictionaries"
    folder.mkdir(exist_ok=True)
    quoted = ("".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in raw(value)) for value in values)
    (folder / f"{target}.dict").write_text("".join(f'"{text}"\n' for text in quoted))


def piece(value):
    return struct.pack("<H", len(raw(value))) + raw(value)


JSON_WORDS = ["true", "false", "null", "\\u0000", "\\ud83d\\ude42", "\\ud800", "1e308", "-0", "9223372036854775807",
              "18446744073709551616", "[[[[", "{}", "[]", ":", ",", "\\\\", '\\"']


def json_seeds():
    for text in ('{"a":[1,-2.5e3,true,false,null,"x\\n\\u00e9\\ud83d\\ude42"],"b":{"c":{}}}', "[]", '"\\ud800"', "0", "-1.0",
                 " \t\n[9223372036854775807,9223372036854775808,1e400,-0]", '{"a":1,"a":2}', '{"\\u0000":1}', "[" * 40,
                 '["' + "\u00e9\U0001f642" * 5 + '"]', "nul", '{"a"}', "[1,]", "'a'"):
        seed("json", text)
    words("json", JSON_WORDS)


def profile_seeds():
    for path in sorted((ROOT / "deploy/profiles").glob("*.json"))[::4]:
        seed("step_profile", path.read_text())
    sound = {"name": "x", "prefill": {"step_us": 1, "row_us": 2, "position_us": 3, "tile_rows": 64}, "decode": {"step_us": 4, "row_us": 5, "context_us": 6, "buckets": [1, 8, 64]},
             "decode_large": {"from_rows": 95, "step_us": 1, "row_us": 1, "context_us": 0}, "noise": {"sigma": 2, "seed": 7}, "kv_tokens": 4096, "kv_bytes_per_token": 10,
             "link": {"bytes_per_second": 1e9, "latency_us": 9}, "swap_bytes_per_second": 1}
    for change in ({}, {"name": ""}, {"prefill": 3}, {"decode": {"buckets": [8, 4]}}, {"noise": {"sigma": -1}}, {"kv_tokens": 1e300}, {"decode_large": {}}, {"other": 1}, {"link": []}):
        seed("step_profile", json.dumps(sound | change))
    words("step_profile", [f'"{key}":' for key in (*sound, "step_us", "row_us", "position_us", "context_us", "tile_rows", "buckets", "from_rows", "sigma", "seed", "latency_us")] + JSON_WORDS)


def tensors(header, data):
    text = raw(header if isinstance(header, str) else json.dumps(header))
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


PACKED_PLAN = 12572605094926805583  # plan_hash of the two layers


def safetensors_seeds():
    seed("safetensors", tensors({"__metadata__": {"format": "pt"}, "a": tensor("BF16", [2, 3], 0, 12)}, b"\1" * 12))
    seed("safetensors", tensors({"a": tensor("BF16", [2, 3], 6, 18), "b": tensor("I8", [2, 3], 0, 6)}, b"\1" * 18))
    seed("safetensors", tensors({"a": tensor("F32", [1], 0, 4), "b": tensor("F16", [2, 1], 4, 8)}, b"\1" * 8))
    seed("safetensors", tensors({"a": tensor("BF16", [], 0, 2), "b": tensor("I64", [0], 2, 2)}, b"\1" * 2))
    seed("safetensors", tensors({"a": tensor("BF16", [2, 3], 0, 12), "b": tensor("BF16", [2, 3], 6, 18)}, b"\1" * 18))
    seed("safetensors", tensors({"a": tensor("F8_E4M3", [1 << 40, 1 << 40], 0, 12)}, b"\1" * 12))
    seed("safetensors", tensors({"a\x1b\n": tensor("X", [-1], 5, 0)}, b""))
    seed("safetensors", tensors("{", b"") + b"}")
    seed("safetensors", struct.pack("<Q", 1 << 62) + b"{}")
    keys = ['"dtype":"BF16"', '"shape":[', '"data_offsets":[', '"__metadata__"', '"F32"', '"F16"', '"BOOL"', '"I8"', '"F8_E5M2"', "18446744073709551615",
            "9223372036854775807", "4294967296", "[0,0]", "\0\0\0\0\0\0"]
    words("safetensors", keys + JSON_WORDS)
    for names in ({"a": "1.safetensors", "b": "2.safetensors"}, {"a": "1.safetensors"}, {"a": "../1.safetensors"}, {"c": "3.safetensors"},
                  {"a": "2.safetensors", "b": "1.safetensors"}, {"a": 1}, {}):
        seed("safetensors_index", json.dumps({"metadata": {"total_size": 24}, "weight_map": names}))
    words("safetensors_index", ['"weight_map":{', '"a":"1.safetensors"', '"b":"2.safetensors"', "../", "./", ".safetensors", "/"] + JSON_WORDS)


CONFIG_KEYS = ["model_type", "llama", "qwen2", "qwen3", "mistral", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
               "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
               "rope_parameters", "rope_type", "llama3", "default", "factor", "low_freq_factor", "high_freq_factor",
               "original_max_position_embeddings", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act", "silu", "eos_token_id",
               "quantization_config", "torch_dtype", "dtype", "bfloat16", "float16", "sliding_window", "use_sliding_window", "layer_types",
               "max_window_layers", "full_attention", "sliding_attention", "attention_dropout", "partial_rotary_factor", "use_qk_norm",
               "num_local_experts", "num_experts", "is_encoder_decoder", "use_mrope", "embedding_multiplier", "final_logit_softcapping", "clip_qkv",
               "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM", "architectures"]


def config_seeds():
    for path in [*MODELS, ROOT / "deploy/local/tiny-shakespeare/config.json"]:
        config = json.loads(path.read_text())
        seed("config_json", json.dumps(config))
        for family in ("qwen2", "qwen3", "mistral"):
            seed("config_json", json.dumps({**config, "model_type": family, "architectures": [], "sliding_window": 64}))
        seed("config_json", json.dumps({**config, "vocab_size": 1 << 31, "hidden_size": 1 << 31}))
        seed("generation_config", json.dumps(json.loads((path.parent / "generation_config.json").read_text())))
    words("config_json", [f'"{key}"' for key in CONFIG_KEYS] + JSON_WORDS + ["2147483648", "0", "1e-300"])
    seed("generation_config", '{"eos_token_id":[1,2,999],"do_sample":true,"temperature":0.7,"top_p":0.9,"top_k":40,"min_p":0.05}')
    seed("generation_config", '{"eos_token":{"content":"e"},"added_tokens_decoder":{"7":{"content":"e"},"8":{"content":"f"}},"eos_token_id":8}')
    seed("generation_config", '{"eos_token":"v","added_tokens":[{"id":9,"content":"e"}],"model":{"vocab":{"v":11}}}')
    seed("generation_config", '{"do_sample":false,"temperature":1e9,"top_p":0,"eos_token_id":1000}')
    keys = ["eos_token_id", "do_sample", "temperature", "top_p", "top_k", "min_p", "bos_token_id", "transformers_version"]
    words("generation_config", [f'"{key}":' for key in keys] + JSON_WORDS)


def small_tokenizer(path):
    """The same pipeline with its single bytes and eight merges."""
    whole = json.loads(path.read_text())
    model = whole["model"]
    merges = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]][:8]
    keep = {token for token in model["vocab"] if len(token) == 1 or token.startswith("<0x")} | {"".join(m) for m in merges} | {t["content"] for t in whole["added_tokens"]}
    keep |= {part for m in merges for part in m}
    model["vocab"] = {token: id for token, id in model["vocab"].items() if token in keep}
    model["merges"] = merges
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


COMPONENTS = {
    "added": ['[{"id":258,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}]',
              '[{"id":258,"content":"world","single_word":true,"lstrip":true,"rstrip":true,"normalized":true,"special":false},{"id":7,"content":"x"}]'],
    "normalizer": ['{"type":"NFC"}', '{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"\u2581"},'
                   '{"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]}', '{"type":"Lowercase"}'],
    "pre_tokenizer": ['{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}',
                      '{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\\\p{N}{1,3}|\\\\s+(?!\\\\S)"},"behavior":"Isolated","invert":false},'
                      '{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}',
                      '{"type":"Split","pattern":{"String":" "},"behavior":"Removed","invert":true}',
                      '{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":false}'],
    "post": ['{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],'
             '"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[258],"tokens":["<s>"]}}}', '{"type":"ByteLevel","trim_offsets":true}'],
    "decoder": ['{"type":"ByteLevel"}', '{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},'
                '{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}'],
}
PATTERNS = ["(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
            "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "[\\p{Han}\\p{Hiragana}]+", "(a+)+$", "\\h\\H[[:alpha:]]",
            "[a-z&&[^aeiou]]", "(?<=x)y|(?<!z)w", "\\x{10FFFF}|\\u00e9", "(((((((((()))))))))))", "[^", "(?:a|b){0,65535}", "\\1(a)", "(?R)"]
TEXTS = ["Hello,  world's 1234 caf\u00e9\n\n\t\U0001f642 x", "<|endoftext|>ROMEO:\n  What light<|im_start|>", "\u0065\u0301\u1100\u1161\u11a8 \ufb01\u0344",
         "    def f(x):\r\n\treturn x+1  ", "\u4f60\u597d\u3002\u3053\u3093\u306b\u3061\u306f \u0645\u0631\u062d\u0628\u0627", "a" * 200, "\u0300" * 60, "\U0001f468\u200d\U0001f469\u200d\U0001f467", ""]


def text_seeds():
    for path in TOKENIZERS:
        seed("tokenizer_json", b"\0" + small_tokenizer(path).encode())
    parts = list(COMPONENTS.values())
    for i in range(max(map(len, parts))):
        seed("tokenizer_json", b"\1" + b"".join(piece(part[min(i, len(part) - 1)]) for part in parts))
    for i, part in enumerate(parts):
        for value in part:
            seed("tokenizer_json", b"\1" + b"".join(piece(value if i == k else '{"type":"ByteLevel"}' if k == 2 else "") for k in range(5)))
    keys = ["type", "added_tokens", "normalizer", "normalizers", "pre_tokenizer", "pretokenizers", "post_processor", "processors", "decoder", "decoders",
            "model", "vocab", "merges", "BPE", "Unigram", "Sequence", "Split", "Digits", "ByteLevel", "Metaspace", "NFC", "Prepend", "Replace", "Strip",
            "ByteFallback", "Fuse", "TemplateProcessing", "pattern", "Regex", "String", "behavior", "Isolated", "Removed", "MergedWithPrevious", "invert",
            "individual_digits", "add_prefix_space", "use_regex", "replacement", "prepend_scheme", "always", "first", "never", "content", "special",
            "single_word", "lstrip", "rstrip", "normalized", "id", "ids", "tokens", "special_tokens", "single", "pair", "byte_fallback", "unk_token",
            "fuse_unk", "ignore_merges", "dropout", "continuing_subword_prefix", "end_of_word_suffix", "start", "stop", "prepend", "split"]
    words("tokenizer_json", [f'"{key}"' for key in keys] + JSON_WORDS + ["\u2581", "\u0120", "<0x0A>", "1048575", "4294967295"])
    for i, text in enumerate(TEXTS):
        for how in range(4):
            seed("tokenizer_text", bytes([i + how, how]) + text.encode())
    seed("tokenizer_text", b"\1\0ok\xff\xc3")
    words("tokenizer_text", ["<|endoftext|>", "<|im_start|>", "<|begin_of_text|>", "\u0301", "\u3099", "\u1161", "\u11a8", "\U0001f642", "\u200d", "\u180e", "\u0130",
                             "  ", "\n\n", "'ll", "\u2581", "\u212b", "\ud55c".encode(), b"\xff", b"\xed\xa0\x80", b"\xf0\x9f"])
    for pattern in PATTERNS:
        seed("regex", piece(pattern) + TEXTS[0].encode())
    seed("regex", piece("(a|aa)+$") + b"a" * 100 + b"!")
    words("regex", ["\\p{L}", "\\p{N}", "\\p{Han}", "\\s", "\\S", "\\h", "(?i:", "(?!", "(?<=", "(?=", "(?>", "{1,3}", "{0,65535}", "*+", "+?", "[^", "&&", "[[:alpha:]]",
                    "\\x{", "\\k<", "(?<a>", "(?R)", "\\K", "\\G", "(*", "(?#", "\\Q", "\\E", "\\R", "\\X", "^", "$", "\\b", "|"])
    for stops, cuts, text in ((["\n\n", "STOP", "S"], b"\1\2\3", "aST STO STOP more\n\n"), (["aab", "ab"], b"\2\1", "aaaab"), ([""], b"", "a"),
                              (["\u00e9"], b"\1", "caf\u00e9"), (["x"] * 17, b"", "x"), (["a" * 256], b"\x10", "a" * 300), ([], b"", "text")):
        seed("stop_matcher", bytes([len(stops)]) + b"".join(map(piece, stops)) + piece(cuts) + text.encode())


CHATS = ROOT / "tests/golden/chat_templates"
JINJA_WORDS = ["{{", "}}", "{%", "%}", "{%-", "-%}", "{{-", "-}}", "{#", "#}", "{%+", "if ", "elif ", "else", "endif", "for ", " in ", "endfor", "set ", "endset", "macro m(", "endmacro",
               "call ", "endcall", "filter ", "endfilter", "with ", "endwith", "break", "continue", "raw", "endraw", "generation", "endgeneration", "not ", " and ", " or ", " is ", "defined",
               "none", "true", "string", "mapping", "namespace(", "range(", "raise_exception(", "strftime_now(", "dict(", "messages", "message", ".role", ".content", "['role']", "loop.", "index0",
               "last", "previtem", "caller()", "varargs", "kwargs", "| tojson", "| trim", "| length", "| join(", "| map(", "| selectattr(", "| default(", "| list", "| sort", "| int", "| round",
               "| replace(", "| indent", "| safe", "| dictsort", "| items", "| first", "| upper", "| title", "| unique", "| sum", "attribute=", ".split(", ".strip(", ".replace(", ".startswith(",
               ".items()", ".get(", "[::-1]", "[1:]", "**", "//", "~", "==", "!=", "<=", "9223372036854775807", "-1", "1e308", "'\\x41'", "'\\u00e9'"]


def chat_seeds():
    for path in sorted(CHATS.glob("*.jinja")):
        seed("template", path.read_text(encoding="utf-8"))
    for source in (CHATS / "constructs.txt").read_text(encoding="utf-8")[:-1].split("\n===\n"):
        seed("template", source)
    words("template", JINJA_WORDS)
    records = json.loads((CHATS / "Qwen-Qwen3-0.6B.json").read_text(encoding="utf-8"))
    for i, record in enumerate(records):
        kept = {key: value for key, value in record.items() if key in ("messages", "tools", "add_generation_prompt")}
        seed("chat_request", bytes([i, i & 1]) + json.dumps(kept, ensure_ascii=False).encode())
    call = {"id": "abcdefghi", "function": {"name": "f", "arguments": '{"a": 1}'}}
    extra = {"messages": [{"role": "user", "content": [{"type": "text", "text": "</s><|im_end|>"}]}, {"role": "assistant", "content": None, "tool_calls": [call]}],
             "documents": [{"title": "t"}], "chat_template_kwargs": {"enable_thinking": False, "date_string": "x", "builtin_tools": ["search"]}}
    for i in range(21):
        seed("chat_request", bytes([i, 1]) + json.dumps(extra).encode())
        seed("chat_request", bytes([i, 0]) + json.dumps({"messages": [{"role": "assistant", "content": " a "}], "continue_final_message": True}).encode())
    words("chat_request", [f'"{key}"' for key in ("messages", "role", "content", "system", "user", "assistant", "tool", "tool_calls", "function", "name", "arguments", "type", "text", "tools",
                           "documents", "chat_template_kwargs", "enable_thinking", "continue_final_message", "add_generation_prompt", "reasoning_content", "parameters")]
          + ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "[INST]"] + JSON_WORDS)
def constraint_seeds():
    schemas = (ROOT / "tests/constrain/schemas.jsonl").read_text(encoding="utf-8").splitlines()
    for schema in schemas[::4]:
        seed("constraint", b"\1" + piece(schema) + b"{\"name\": [1, true, \"x\"]}")
    for pattern in ("a|bc*", "(?:ab){2,3}[^x-z]\\d+$", ".*\\u{1F642}", "^(a|b)*a(a|b){9}", "[\\w.-]+@(?<h>x)?", "(?=a)", "\u00e9{1,300}"):
        seed("constraint", b"\2" + piece(pattern) + b"abab12")
    seed("constraint", b"\3" + piece('["yes","no","not \\u00e9"]') + b"no")
    seed("constraint", b"\0" + piece("") + b'{"a":[[1')
    seed("constraint", b"\4" + piece('{"begin":"[","tools":[{"name":"f","begin":"f(","schema":"{\\"type\\":\\"object\\",\\"required\\":[\\"a\\"]}","end":")"},{"name":"g",'
                                    '"begin":"<g>","schema":"true"}],"separator":", ","end":"]","parallel":true,"special_tokens":["<g>"]}') + b"f({1")
    for schema in ('{"$ref":"#"}', '{"allOf":[{"$ref":"#/allOf/1"},{"anyOf":[true,false]}]}', '{"oneOf":[{"const":1},{"enum":[null]}]}',
                   '{"type":"array","items":{"$ref":"#"},"minItems":2}', '{"type":"number","minimum":-1.5e-3,"exclusiveMaximum":1e17}'):
        seed("constraint", b"\1" + piece(schema) + b"[1")
    words("constraint", ['"type":"', '"object"', '"array"', '"string"', '"integer"', '"number"', '"properties":{', '"required":["', '"items":{', '"enum":[', '"const":', '"anyOf":[{',
                         '"allOf":[{', '"oneOf":[{', '"$ref":"#/', '"$defs":{', '"pattern":"', '"format":"date"', '"minLength":', '"maxLength":', '"minItems":', '"maxItems":',
                         '"minimum":', '"maximum":', '"multipleOf":', '"additionalProperties":', '"prefixItems":[', '"patternProperties":{', '"propertyNames":{', "(?:", "{1,3}",
                         "[^", "\\\\d", "\\\\u{1F642}", '"begin":"', '"schema":"', '"tools":[{"name":"'] + JSON_WORDS)


def setting_seeds():
    def config(yaml, environment, flags):
        pairs = b"".join(bytes([row]) + piece(value) for row, value in environment)
        return piece(yaml) + bytes([len(environment)]) + pairs + b"\0".join(map(raw, flags))

    seed("config", config("text: abc\nsmall: 4\nratio: 0.25\nflag: true\nchoice: tcp\nbuffer-bytes: 64KiB\ntime: 500ms\n", [], []))
    seed("config", config("", [(0, "x"), (2, "9"), (7, "1GiB"), (8, "10s")], ["--small", "3", "--no-flag", "--item=a", "--item", "b", "pos", "--", "--x"]))
    seed("config", config("nope: 1\nsmall: 99\ntext: [1, 2]\n", [(1, "-1"), (4, "nan"), (5, "yes")], ["--choice", "infiniband", "--time=5", "--unknown", "-x", "a", "b", "c"]))
    seed("config", config("? a\n: b\n&x text: *x\n--- !!map {}\n", [], ["--help"]))
    seed("config", config('text: "\\x1b\\u0085\\n"\n"\\x07": 1\n', [(3, "\x1b[31m\n")], ["--\xff\n", "--small=\x7f"]))
    words("config", ["text", "count", "small", "ratio", "share", "flag", "choice", "buffer-bytes", "time", "item", "KiB", "MiB", "GiB", "us", "ms", "true", "false", "auto",
                     "--no-flag", "--small", "--item=", "--time=", "\0", ": ", "\n", "&a", "*a", "!!str", "|", ">-", "<<", "%YAML 1.1\n---\n", "- ", "{", "}", "[", "]", "1e999",
                     "18446744073709551615", "0x10", "-1"])
    for text in ("prefill.taken=kill@3", "decode-0:step.fails=fail@*,prefill-0:prefill.taken=log,router.placed=pause@1", "router.placed=kill@0,b", "=", "a=b@c", ",,,",
                 "@prefill.taken=stop@2\nprefill-0:step.fails=fail", "@", "router.placed=stop@4294967296", "router.placed=kill:prefill.taken",
                 ",".join("router.placed=log" for i in range(20)), "x" * 70 + "=kill", "a\n\x1b=\xff"):
        seed("failpoint", text)
    words("failpoint", ["prefill.taken", "step.fails", "router.placed", "prefill-0:", "=kill", "=stop", "=pause", "=hang", "=fail", "=log", "@*", "@1", ",", ":"])


# ------------------------------------------------------------------------------------------------ protobuf
def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


class fixed64(int):
    pass


class fixed32(int):
    pass


class fixed32s(list):
    """Packed."""


def message(*fields):
    """(number, value) each: int varint, fixed64, fixed32, float, str or bytes, a list of ints packed."""
    out = b""
    for number, value in fields:
        if isinstance(value, fixed64):
            out += varint(number << 3 | 1) + struct.pack("<Q", value)
        elif isinstance(value, fixed32):
            out += varint(number << 3 | 5) + struct.pack("<I", value)
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            body = b"".join(struct.pack("<I", v) for v in value) if isinstance(value, fixed32s) else b"".join(map(varint, value)) if isinstance(value, list) else raw(value)
            out += varint(number << 3 | 2) + varint(len(body)) + body
    return out


def floats(values):
    return fixed32s(struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values)))


VERSION = int(re.search(r"WORKER_PROTOCOL_VERSION (\d+)", (HERE.parents[1] / "common/net/membership/worker_message.h").read_text())[1])
INFO = message((1, VERSION), (2, "prefill-0"), (3, 1), (4, fixed64(7)), (5, "127.0.0.1:4001"), (6, "tested"), (7, fixed64(1)), (8, fixed64(2)), (9, fixed64(3)),
               (10, 16), (11, 64), (12, 256), (13, 384), (14, "portable"), (15, 99), (16, "127.0.0.1:4002"), (18, 8))
SAMPLING = message((1, 0.5), (2, 40), (3, 0.9), (4, 0.05), (5, fixed64(3)), (6, 8), (9, [2, 5]))


def prompt_hash(tokens):
    """FNV-1a, as wire_prompt_hash."""
    value = 0xCBF29CE484222325
    for byte in b"".join(struct.pack("<I", token) for token in tokens):
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def handle(incarnation=7, id=0, generation=1, tokens=range(3, 23), blocks=(0, 1)):
    return message((1, fixed64(incarnation)), (2, id), (3, generation), (4, fixed64(1)), (5, fixed64(2)), (6, fixed64(3)), (7, len(tokens)), (8, fixed32s(blocks)),
                   (9, fixed64(prompt_hash(tokens))))


def ref(incarnation=7, id=0, generation=1):
    return message((1, fixed64(incarnation)), (2, id), (3, generation))


def key(request=1, attempt=1):
    return [(1, fixed64(request)), (2, attempt)]


PROMPT = fixed32s(range(3, 23))
GENERATE = [
    message((1, "r-1"), (2, "tested"), (3, "ROMEO:"), (5, message((1, 0.0), (2, 0), (3, 1.0), (4, 0.0), (5, 42), (6, 8), (7, 0), (8, 1))),
            (6, message((1, "\n\n"), (1, "STOP"), (2, [2]))), (7, message((1, 1), (2, 1), (3, 1), (4, 1))), (8, 1)),
    message((4, message((1, [1, 2, 3, 383]))), (5, message((6, 200)))),
    message((3, "x"), (5, message((1, float("nan"))))),
    message((3, "x"), (6, message((1, "")))),
    message((1, "a b\n"), (3, "x")),
    message((4, message((1, [384])))),
    message((3, "ROMEO:"), (5, message((6, 8), (9, 1.5), (10, -0.5), (11, 1.25), (12, message((1, 7), (2, 2.5))), (12, message((1, 9), (2, -100.0))), (13, 3))),
            (7, message((5, 20), (6, 2), (7, 1)))),
    message((4, message((1, [1, 2, 3]))), (5, message((12, message((1, 5), (2, 101.0))))), (7, message((5, 21)))),
    b"",
    *(message((4, message((1, [1, 2, 3]))), (10, constraint)) for constraint in (
        message((1, 1)), message((2, '{"type": "object", "properties": {"a": {"enum": [1, "b"]}}}')), message((3, "a+|b{2,3}")),
        message((4, message((1, "yes"), (1, "no")))), message((3, "(a|b)*a(a|b){20}")), message((2, '{"not": {}}')),
        message((5, message((1, message((1, "f"), (2, "f("), (3, '{"type": "object"}'), (4, ")"))), (2, "<g>"), (3, ", "), (5, 1), (6, "<g>")))), b"")),
]
TOLD = message((1, -0.5), (2, fixed32s([65, 9])), (3, floats([-0.5, -1.5])))
OPTIONS = message((1, 1.0), (3, 1.0), (6, 8), (11, 1), (12, 2), (13, 0.5), (14, -0.5), (15, 1.25), (16, fixed32s([7, 9])), (17, floats([2.5, -100.0])), (18, 1), (19, 1),
                  (20, 2), (21, 1))
SESSION_DOWN = {
    "prefill": message((1, message(*key(), (3, PROMPT), (5, SAMPLING), (6, "r-1")))),
    "prefill again": message((1, message(*key(1, 2), (3, PROMPT), (4, fixed32s([9, 9])), (5, SAMPLING)))),
    "decode": message((2, message(*key(), (3, handle()), (4, PROMPT), (6, SAMPLING), (7, "127.0.0.1:4001"), (8, "prefill-0"), (9, "r-1")))),
    "decode alone": message((2, message(*key(2, 1), (4, PROMPT), (6, SAMPLING)))),
    "decode long": message((2, message(*key(3, 1), (3, handle(tokens=[1] * 300, blocks=range(19))), (4, fixed32s([1] * 300)), (6, SAMPLING), (7, "a:1"), (8, "p")))),
    "prefill with options": message((1, message(*key(4, 1), (3, PROMPT), (5, OPTIONS)))),
    "decode alone with options": message((2, message(*key(4, 1), (4, PROMPT), (6, OPTIONS)))),
    "decode with a constraint": message((2, message(*key(4, 1), (4, PROMPT), (6, SAMPLING + message((22, message((1, 2), (2, "[a-z]+")))))))),
    "release": message((3, message(*key()))),
    "hello": message((4, message((1, fixed64(1))))),
    "hello of another": message((4, message((1, fixed64(2))))),
    "release all": message((3, message(*key(1, 0xFFFFFFFF)))),
    "cache restart": message((6, b"")),
}
SESSION_UP = {
    "hello": message((1, message((1, INFO)))),
    "opened": message((2, message(*key(), (3, handle())))),
    "token": message((3, message((1, message(*key(), (3, 1), (4, 65), (5, fixed64(5))))))),
    "tokens": message((3, message(*[(1, message(*key(), (3, i), (4, 64 + i), (6, 4 if i == 8 else 0))) for i in range(1, 9)]))),
    "token with logprobs": message((3, message((1, message(*key(), (3, 1), (4, 65), (7, TOLD)))))),
    "prompt logprobs": message((9, message(*key(), (3, 1), (4, TOLD), (4, TOLD)))),
    "prompt logprobs that are none": message((9, message(*key(), (3, 1), (4, TOLD), (4, message((1, 1.0)))))),
    "lost": message((4, message(*key(), (3, "gone")))),
    "refused": message((5, message(*key(), (3, "limit"), (4, "no room\n"), (5, 1)))),
    "refused for ever": message((5, message(*key(), (3, "invalid"), (4, "\x1b[2Jno\n" + "\u00e9" * 120)))),
    "draining": message((5, message(*key(), (3, "draining"), (4, "the worker is draining"), (5, 1)))),
    "load": message((6, message((1, 1), (2, 20), (3, 1), (4, 60), (5, 2), (6, 2), (7, 0)))),
    "steps": message((3, message((2, message((1, 900), (2, 20), (3, 190), (4, 3), (5, 60))), (2, message((1, 400), (4, 1), (5, 20), (6, 2), (7, 30))),
                                 (3, message((1, 1), (9, 5), (10, 1), (11, 40), (12, 20), (13, 7)))))),
    "steps that are none": message((3, message((2, message((1, 900), (2, 1), (3, 1 << 63)))))),
    "pulled": message((7, message(*key(), (3, "tcp"), (4, 4096), (5, 2048)))),
    "cache": message((8, message((1, 1), (2, message((1, 0))), (2, message((1, 1), (2, fixed64(5)), (3, fixed64(6)), (4, fixed64(7)), (7, 32))), (2, message((1, 2), (2, fixed64(5))))))),
    "cache with a gap": message((8, message((1, 9), (2, message((1, 1), (2, fixed64(5)), (7, 32)))))),
}
NAMED = ((7, "worker-0"), (8, fixed64(7)))  # as the fuzzed world's worker is called
PEER_DOWN = {
    "hello": message((1, message((1, VERSION), (2, "decode-0"), (3, fixed64(8)), (4, fixed64(1)), (5, fixed64(2)), (6, fixed64(3)), *NAMED))),
    "hello of another": message((1, message((1, VERSION), (2, "decode-0"), (3, fixed64(8)), (4, fixed64(4)), (5, fixed64(2)), (6, fixed64(3)), *NAMED))),
    "hello to another": message((1, message((1, VERSION), (2, "decode-0"), (3, fixed64(8)), (4, fixed64(1)), (5, fixed64(2)), (6, fixed64(3))))),
    "subscribe": message((2, message(*key(), (3, ref())))),
    "extend": message((3, message((1, message(*key(), (3, ref()))), (1, message(*key(2, 1)))))),
    "confirm": message((4, message(*key(), (3, ref())))),
    "release": message((5, message(*key(), (3, ref())))),
}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


ZERO_BLOCK_CRC = crc32c(bytes(256))  # WORLD_BLOCK_BYTES of worker_world.h
PEER_UP = {
    "welcome": message((1, message((1, VERSION), (2, fixed64(7)), (3, "address"), (4, 10_000_000)))),
    "ready": message((2, message(*key(), (3, 16)))),
    "complete": message((3, message(*key(), (3, 65), (4, fixed64(5)), (6, fixed32s([ZERO_BLOCK_CRC] * 2))))),
    "complete with logprobs": message((3, message(*key(), (3, 65), (6, fixed32s([ZERO_BLOCK_CRC] * 2)), (7, TOLD)))),
    "complete and finished": message((3, message(*key(), (3, 2), (5, 1)))),
    "complete and wrong": message((3, message(*key(), (3, 65), (6, fixed32s([1, 2]))))),
    "held": message((4, message(*key()))),
    "gone": message((5, message(*key()))),
    "extended": message((6, message(*key(), (3, 10_000_000)))),
}
REFLECTION = [message((1, "h"), (number, name)) for number, name in
              ((3, "proto/baton.proto"), (3, "baton.proto"), (4, "baton.v1.Baton"), (4, "baton.v1.Baton.Generate"), (4, "baton.v1.Sampling.top_k"),
               (6, "baton.v1.Sampling"), (7, "*"))] + [message((5, message((1, "baton.v1.Sampling"), (2, 100)))), b""]


def proto_seeds():
    for kind, bodies in enumerate((GENERATE, [message((1, "tested"), (2, "text"), (3, 0))], [message((1, ""), (2, [1, 2, 300]), (3, 1))], [message((1, message((1, 3), (2, "t"), (3, [1]))))],
                                   [message((1, "r"), (2, "text"), (3, [1, 2]))], [message((1, INFO))], SESSION_DOWN.values(), SESSION_UP.values(), PEER_DOWN.values(),
                                   PEER_UP.values(), [message((1, "baton.v1.Baton"))], REFLECTION)):
        for body in bodies:
            seed("proto", bytes([kind]) + body)
    words("proto", [b"\x0a\x00", b"\x12\x00", b"\x1a\x00", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x01", b"\xc3\xa9", b"\x80\x80\x80\x80\x08"])


def events(*pairs):
    return b"".join(bytes([what]) + piece(body) for what, body in pairs)


def service_seeds():
    for method, bodies in enumerate((GENERATE, GENERATE, [message((1, "tested"), (2, "text"), (3, 0)), message((1, "other")), message((1, "\x1b[2J" + "\u00e9" * 60)), message((2, "x" * 900))],
                                     [message((2, [1, 2, 300])), message((2, [599, 600])), message((3, 1))], [b"", b"\xff"])):
        for flags in (0, 1, 2, 4, 8):
            for body in bodies if flags == 0 else bodies[:1]:
                seed("public_request", bytes([method, flags]) + body)
    for i, body in enumerate(REFLECTION):
        seed("rpc_builtin", events((2 + i % 2, body)))
    seed("rpc_builtin", events((0, message((1, "baton.v1.Baton"))), (1, ""), (4, ""), (4, ""), (2, REFLECTION[0]), (7, ""), (3, REFLECTION[1]), (5, "12"), (6, "1")))
    seed("rpc_builtin", events((0, message((1, "nobody"))), (1, message((1, "nobody")))))
    words("rpc_builtin", ["baton.v1.Baton", "baton.v1.Sampling", "proto/baton.proto", "baton.proto", "worker.proto", "grpc.health.v1.Health", "google.protobuf", "."])
    words("public_request", ['{"type":', '"properties"', '"enum":[', "[a-z]+", "tested", "<|begin_of_text|>", "\n\n", b"\x0a\x00", b"\x12\x00", b"\x80\x80\x80\x80\x08", b"\x00\x00\xc0\x7f"])
    header = b"BKVA" + struct.pack("<HBBIIIQ16sQQQHH", 3, 1, 3, 0, 7, 9, 5, b"s" * 16, 9, 4096, 1 << 20, 4, 4001) + bytes(16)
    for tail in (struct.pack("<HH", 3, 2) + b"abcde", struct.pack("<HH", 0, 0), struct.pack("<HH", 9, 9)):
        seed("kv_address", b"\1" + header + tail + bytes(4))
        seed("kv_address", b"\0" + header + tail + bytes(4))
    info = INFO.replace(message((13, 384)), message((13, 600)))  # the ids of fuzz_router.c's model
    decode_info = info.replace(b"prefill-0", b"decode--0").replace(b"\x18\x01", b"\x18\x02", 1).replace(b":4001", b":5001")
    seed("router", events((0, message((1, info))), (0, message((1, info), (2, 1)))))

    def to(model, index):
        return GENERATE[index] + message((2, model))
    prefill, decode = message((1, info)), message((1, decode_info))
    hello = [(3, b"\0" + message((1, message((1, info))))), (3, b"\1" + message((1, message((1, decode_info)))))]
    start = [(0, prefill), (0, decode), *hello, (1, to("tested", 1))]
    up = {name: (3, b"\0" + body) for name, body in SESSION_UP.items()}
    down = {name: (3, b"\1" + body) for name, body in SESSION_UP.items()}
    seed("router", events(*start, up["load"], up["opened"], up["token"], down["pulled"], down["tokens"], (0, prefill)))
    seed("router", events(*start, up["opened"], down["lost"], (6, "x" * 30), up["opened"], (4, ""), (6, "x" * 100), (0, prefill), (0, decode), *hello))
    seed("router", events(*start, up["refused"], (6, "x" * 9), up["draining"], (5, ""), (7, ""), (1, to("tested", 0)), (2, to("tested", 0)), (6, "x" * 400)))
    seed("router", events(*start, up["refused for ever"]))
    seed("router", events((7, "x"), *start, up["load"], up["opened"], (1, to("tested", 0)), (5, ""), up["token"], down["pulled"], down["tokens"], (7, "x"), (0, prefill), (1, to("tested", 0))))
    seed("router", events(*start, (2, to("tested", 0)), up["opened"], down["token"], (7, ""), down["tokens"], (7, ""), down["tokens"]))
    options = message((4, message((1, [1, 2, 3]))), (5, message((6, 1), (13, 2))), (7, message((5, 2), (6, 2), (7, 1))))
    told = [(0, prefill), (0, decode), *hello, (1, options), up["opened"], up["prompt logprobs"], up["token with logprobs"]]
    seed("router", events(*told, down["token with logprobs"], (7, ""), down["lost"], (6, "x" * 30)))
    seed("router", events(*told[:-2], up["prompt logprobs that are none"], (0, prefill), *hello, (2, options)))
    seed("router", events(*told[:-2], up["token with logprobs"], (1, GENERATE[6]), (1, GENERATE[7])))
    seed("router", events((0, b""), (0, b"\xff"), (3, b"\0\xff"), (0, decode), (3, b"\0" + SESSION_UP["load"]), (1, GENERATE[2]), (6, "x" * 2000)))
    # Both models: a worker of the second, its requests before and after it comes, one for a model without workers, one without a name.
    other_info = decode_info.replace(b"decode--0", b"decode--1").replace(b"tested", b"other", 1).replace(b"2\x06other", b"2\x05other").replace(message((13, 600)), message((13, 599)))
    other = message((1, other_info))
    seed("router", events(*start, (1, to("other", 1)), (0, other), (3, b"\2" + message((1, message((1, other_info))))), (2, to("other", 1)), (1, to("third", 1)), (1, GENERATE[1]),
                          (3, b"\2" + SESSION_UP["tokens"]), up["opened"], (4, "xx"), (6, "x" * 400)))
    seed("router", events((0, message((1, other_info.replace(b"other", b"third")))), (0, message((1, other_info.replace(message((13, 599)), message((13, 600)))))), (0, other)))
    words("router", [body for body in SESSION_UP.values() if len(body) < 60] + [b"\x09\1\0\0\0\0\0\0\0\x10\1", b"\x09\2\0\0\0\0\0\0\0\x10\1"])


def http_seeds():
    for text in ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /healthz?x=1#f HTTP/1.0\r\n\r\n", "POST /status HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
                 "GET /%2e%2e/%00a%zz HTTP/1.1\r\n\r\n", "GET http://h:1/p HTTP/1.1\r\nExpect: 100-continue\r\n\r\n", "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                 "CONNECT a:1 HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /" + "a" * 3000, "\r\n\r\n", "\x16\x03\x01", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                 "POST /json/a HTTP/1.1\r\nHost: [::1]:8\r\nOrigin: http://localhost:3\r\nContent-Type: application/a+json; b=c\r\nContent-Length: 2\r\n\r\n{}",
                 "POST /json/a HTTP/1.1\r\nHost: localhost.\r\nOrigin: null\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        seed("http", text)
    words("http", ["GET ", "HEAD ", "POST ", "DELETE ", "CONNECT ", "OPTIONS ", " HTTP/1.1", " HTTP/1.0", "\r\n", "Content-Length: ", "Transfer-Encoding: chunked", "Host: ", "Origin: ", "localhost", "127.0.0.1",
                   "Content-Type: application/json", "Connection: keep-alive", "Expect: 100-continue", "%00", "%2f", "?", "#", "//", ":", "18446744073709551616", "-1", "\t", "http://[::1]:1/"])


HTTP_WORDS = ["GET ", "POST ", "HEAD ", "OPTIONS ", " HTTP/1.1", " HTTP/1.0", "\r\n", "\r\n\r\n", "Content-Length: ", "Transfer-Encoding: chunked", "Host: a", "Connection: ", "close", "keep-alive",
              "Expect: 100-continue", "Authorization: ", "%00", "%2f", "?", "*", "//", ":", "http://a", "18446744073709551616", "\t", "\n", "\r"]


def http_head_seeds():
    # A byte that says how it is cut, then the bytes.
    for text in ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "\r\nPOST /a%20b?c=%d HTTP/1.1\r\nHOST: [::1]:80\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
                 "POST http://h/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\n\r\n0\r\n\r\n", "OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                 "GET /%c3%a4%zz HTTP/1.1\r\nHost : a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n"):
        seed("http_head", "\3" + text)
    words("http_head", HTTP_WORDS)


def http_body_seeds():
    # How it is cut, whether in chunks (odd) and otherwise how long, then the bytes.
    for how, text in (("\1", "3\r\nabc\r\n0\r\n\r\nGET"), ("\1", "00a;x=\"y\"\r\n0123456789\r\n0;z\r\nTrailer: x\r\n\r\n"), ("\1", "fffffffffffffff\r\n"), ("\1", "1\nab"), ("\x0a", "hello and more"),
                      ("\0", ""), ("\1", "1\r\na\r\n" * 40 + "0\r\n\r\n")):
        seed("http_body", "\2" + how + text)
    words("http_body", ["0\r\n\r\n", "\r\n", "1\r\na\r\n", ";", "f", "0", ":", "\t", "X: y\r\n"])


def openai_seeds():
    message = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for prompt in ("hi", ["a", "b"], [1, 2], [[1], [2, 3]], [], None, {}):
        seed("openai_request", b"\0" + json.dumps({"model": "m", "prompt": prompt, "n": 2, "max_tokens": 5.0, "seed": 1 << 63, "logit_bias": {"5": -100, "x": 1}}).encode())
    seed("openai_request", b"\0" + json.dumps({"prompt": "a", "stop": ["x", None], "stop_token_ids": [3], "echo": True, "logprobs": 2, "stream": True, "priority": "high",
                                               "slo_class": "chat", "slo_objective": {"ttft_ms": 500.5, "tpot_ms": 40},
                                               "stream_options": {"include_usage": True}, "structured_outputs": {"regex": "a+"}, "guided_choice": ["a"]}).encode())
    for messages in ([message], [call, {"role": "tool", "tool_call_id": "c", "content": "1"}], [{"role": "developer", "content": "b"}], []):
        seed("openai_request", b"\1" + json.dumps({"messages": messages, "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}},
                                                   "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}, "chat_template_kwargs": {"k": 1}}).encode())
        seed("openai_request", b"\1" + json.dumps({"messages": messages, "tools": [tool], "logprobs": True, "top_logprobs": 3}).encode())
        seed("openai_request", b"\2" + json.dumps({"messages": messages, "tokens": [1, 2.0, "3"]}).encode())
    for text in ('a <tool_call>{"name": "f", "arguments": {"x": "}"}}</tool_call>\n<tool_call>{"arguments": 1, "name": "get"}', '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "x"}',
                 '[TOOL_CALLS][{"name": "f", "arguments": [1]}, {"name": "get"}] b', "[TOOL_CALLS]f[CALL_ID]12[ARGS]{} [TOOL_CALLS]get{", "<tool_call>{}", "   "):
        for what in range(3, 7):
            seed("openai_request", bytes([what, 2]) + text.encode())
    words("openai_request", ['"prompt"', '"messages"', '"tools"', '"role"', '"content"', '"function"', "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", '{"name":"f"',
                             '"arguments":{', '"parameters":', "null", "1e999", "\\u0000", "\\ud800"])


def scheduler_seeds():
    # First 0, or 1: steps run ahead. Events: 0 add (key, plan, tokens, emitted, max_tokens), 1 reserve, 2 compute (a token for each part; while steps run
    # ahead that comes with their end), 3 the end of a step in flight, otherwise as 2, 4 remove, 5 admit.
    lives = [[0, 1, 2, 30, 0, 5, 1, 2, 1, 2, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3],
             [0, 1, 0, 40, 3, 5, 1, 2, 1, 2, 1, 2, 1, 4, 1],
             [0, 1, 1, 40, 3, 5, 1, 5, 1, 3, 2, 3, 2, 3, 2, 2],
             [b for key in range(9) for b in (0, key, key % 3, 60, 0, 9, 1, 2, 1, 1, 1)],
             [0, 1, 1, 119, 0, 119, 0, 2, 2, 99, 0, 0, 1, 1, 2, 3],
             [0, 1, 2, 30, 0, 5, 1, 2, 2, 0, 2, 2, 90, 0, 60, 1, 3, 1, 2, 4, 1, 2, 3, 1, 1, 2]]
    for life in lives:
        for ahead in (0, 1):
            seed("scheduler", bytes([ahead, *life]))


def trace_seeds():
    def line(tokens, ids, **more):
        return json.dumps({"timestamp": 0, "input_length": tokens, "output_length": 1, "hash_ids": ids, **more}) + "\n"
    seed("prefix_trace", "".join(line(1500 + 300 * i, [i % 2, 2 + i % 3, *range(10 * i, 10 * i + (1500 + 300 * i + 511) // 512 - 2)]) for i in range(8)))
    seed("prefix_trace", line(1024, [0, 1]) * 3 + line(1025, [0, 1, 2]) + line(2048, [0, 1, 2, 3]) + line(2049, [0, 1, 2, 3, 4]))
    seed("prefix_trace", line(1, [0]) + line(0, []) + line(512, [1, 2]) + line(-1, [1]) + line(2**22 + 1, [1]) + "\n[]\n{}\n" + line(5, [2**26]) + line(5, ["a"]) + line(5, 7))
    seed("prefix_trace", line(1, [0]).rstrip() + "x")
    words("prefix_trace", ['"input_length":', '"hash_ids":[', '"timestamp":0', "512", "513", "1024", "67108864", "4194304", "4194305", "-1", "1e3", "\n", "]}\n", "[0,1,2,3]"])


def worker_seeds():
    down = {name: (0, body) for name, body in SESSION_DOWN.items()}
    up = {name: (3, b"\0" + body) for name, body in PEER_UP.items()}
    good = (4, "")
    run, fail, silence = (6, ""), (6, "x"), (7, "x" * 1100)
    pulled = [down["decode"], run, good, up["ready"], up["complete"], run, up["held"], run, run]
    seed("decode_worker", events(*pulled, *[run] * 10))
    seed("decode_worker", events(down["hello"], *pulled, down["hello of another"], down["decode alone"], *[run] * 12))
    seed("decode_worker", events(down["decode"], run, good, up["ready"], (5, ""), (7, "x" * 30), good, up["complete"], up["held"], run, run))
    seed("decode_worker", events(down["decode"], run, good, up["complete and wrong"], run, up["complete"], run, up["gone"], down["decode"], silence))
    seed("decode_worker", events(down["decode"], run, good, up["complete and finished"], run, down["release"], run))
    seed("decode_worker", events(down["decode"], good, (2, ""), (1, ""), down["decode long"], run, fail, down["decode alone"], run, fail, (9, ""), down["decode alone"]))
    seed("decode_worker", events(down["decode"], run, up["welcome"], (8, ""), down["decode alone"], run, run, (8, ""), down["release all"], silence, up["extended"]))
    seed("decode_worker", events(down["decode with a constraint"], run, run))
    seed("decode_worker", events(down["decode alone with options"], run, run, run, down["decode"], good, up["complete with logprobs"], run, run))
    seed("decode_worker", events(down["prefill"], (0, b"\xff"), (0, b""), (3, b"\0\xff")))
    words("decode_worker", [body for body in (*PEER_UP.values(), *SESSION_DOWN.values()) if len(body) < 60])
    peer = {name: (3, b"\0" + body) for name, body in PEER_DOWN.items()}
    served = [(4, ""), peer["hello"], down["prefill"], run, peer["subscribe"], run, peer["extend"], run]
    seed("prefill_worker", events(*served, peer["confirm"], run, peer["confirm"]))
    seed("prefill_worker", events(down["hello"], *served, down["prefill again"], run, run, peer["release"], down["hello of another"], run))
    seed("prefill_worker", events(down["hello"], (4, ""), peer["hello to another"], peer["subscribe"], run))
    seed("prefill_worker", events(*served, (5, ""), (4, ""), peer["hello"], peer["subscribe"], silence, peer["confirm"], run))
    seed("prefill_worker", events((4, ""), peer["subscribe"], (4, ""), peer["hello of another"], (4, ""), (7, "x" * 600), down["prefill"], fail, run, (9, ""), down["prefill"]))
    seed("prefill_worker", events(*served, (8, ""), run, peer["extend"], (8, ""), (2, ""), (1, ""), down["release all"], run, down["decode"]))
    seed("prefill_worker", events(down["prefill with options"], run, run, *served, run))
    seed("prefill_worker", events((0, b"\xff"), (0, b""), (4, ""), (3, b"\0\xff"), (3, b"\0"), (3, b"\0" + message((3, b"")))))
    words("prefill_worker", [body for body in (*PEER_DOWN.values(), *SESSION_DOWN.values()) if len(body) < 60])
    frame = lambda kind, a, b, c, d=0, version=2: b"BKVL" + struct.pack("<HHQQQQ", version, kind, a, b, c, d)
    hello, ask = frame(1, 5, 1, 2), frame(3, 1, 100, 900, 7)
    for pool, cuts, data in ((1000, b"", hello + ask + ask), (1000, b"\1\x10\x20", hello + ask + frame(3, 2, 101, 900)), (1000, b"", ask), (1000, b"", hello + hello),
                             (1000, b"\5", frame(1, 5, 1, 2, version=1)), (0, b"", hello + frame(3, 1, 0, 1)), (1000, b"", frame(2, 1, 1, 1)), (9, b"\3", b"GET / HTTP/1.1\r\n\r\n" * 3)):
        seed("kv_frame", struct.pack("<I", pool) + piece(cuts) + data)
    words("kv_frame", ["BKVL", b"BKVL\2\0\1\0", b"BKVL\2\0\3\0", b"\xff" * 8])
    for text in ("seed=7,drop=0.01,delay=0.1:20ms", "corrupt=1,first=3,limit=2", "reorder=0.5:1s,duplicate=0,lost=1e-3", "drop=2", "drop", "seed=x", "delay=0.1:", ",", "",
                 "drop=nan", "drop=0.1,drop=0.1", "x\x1b=\n"):
        seed("kv_faults", text)
    words("kv_faults", ["seed=", "first=", "limit=", "drop=", "delay=", "duplicate=", "corrupt=", "reorder=", "lost=", ":20ms", "1e-300", ","])


def frame_gate_seeds():
    def frame(kind, flags, stream, length):
        return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + bytes(length)

    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, 12)
    call = frame(1, 4, 1, 40) + frame(0, 1, 1, 30)
    answer = frame(4, 0, 0, 6) + frame(1, 4, 1, 10) + frame(0, 0, 1, 20) + frame(1, 5, 1, 10) + frame(3, 0, 3, 4) + frame(6, 0, 0, 8)
    floods = [frame(1, 4, 1, 9) + frame(3, 0, 1, 4), frame(9, 0, 1, 0), frame(9, 0, 1, 200), frame(4, 0, 0, 0), frame(6, 0, 0, 8), frame(0, 0, 1, 0), frame(8, 0, 0, 4)]
    for cuts, server, client in ((b"", b"", begin + call), (b"\1\2\x09\x20", answer, begin + call + frame(4, 1, 0, 0) + frame(3, 0, 1, 4)), (b"\5", b"", b"GET / HTTP/1.1\r\n\r\n"),
                                 (b"", answer[:5], begin + call * 3), *((bytes([7] * 40), b"", begin + frame(1, 0, 1, 9) + flood * 120) for flood in floods)):
        seed("frame_gate", piece(cuts) + piece(server) + client)
    words("frame_gate", [begin[:24], *(frame(kind, flags, 1, 0) for kind in range(10) for flags in (0, 1, 4, 5))])


def key_seeds():
    hashes = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
    good = f"# ours\n\n  id=ci sha256={hashes[0]} tenant=acme requests=60 tokens=100000 running=8 priorities=high,normal\r\nid=b sha256={hashes[1]} tenant=b.c_D-9"
    for text in (good, good.replace(hashes[1], hashes[0]), good.replace("id=b", "id=ci"), good.replace("requests", "request"), good.replace("=60", "=0"), good.replace("high", "hugh"),
                 good.replace("id=ci ", ""), good.replace("acme", "a/c"), "id=a id=b", "baton_1\n", "=", "\n\n#\n", ""):
        seed("access_keys", text)
    words("access_keys", ["id=", "sha256=", "tenant=", "requests=", "tokens=", "running=", "priorities=", "normal", "high", "offline", ",", "\n", "#", *hashes, "1000000000"])


def packed_seeds():
    """Two layers, as fuzz_packed_header.c plans them: three pieces. Its plan_hash is the target's own; one word holds it."""
    data = 8192 + (16 << 20) + 4096
    for version, packing, sources, model, plan in ((1, b"cpu-1", 1, 2, PACKED_PLAN), (1, b"cpu-1", 1, 2, 0), (1, b"cpu-1", 1, 3, PACKED_PLAN), (1, b"cpu-1", 2, 2, PACKED_PLAN),
                                                   (1, b"cpu-2", 1, 2, PACKED_PLAN), (2, b"cpu-1", 1, 2, PACKED_PLAN)):
        header = struct.pack("<8sII32sQQQQQQ", b"BATONPK", version, 128, packing, sources, model, plan, 2 << 20, data, 3) + bytes(32)
        for front in (b"\1\0", b"\0\0", b"\1\1"):
            seed("packed_header", front + header)
    seed("packed_header", b"\1\0" + header[:50])
    words("packed_header", ["BATONPK", "cpu-1", "reference-1", struct.pack("<I", 128), struct.pack("<Q", PACKED_PLAN), struct.pack("<Q", data), struct.pack("<Q", 2 << 20)])


def main():
    packed_seeds()
    frame_gate_seeds()
    key_seeds()
    http_seeds()
    http_head_seeds()
    http_body_seeds()
    openai_seeds()
    scheduler_seeds()
    trace_seeds()
    worker_seeds()
    service_seeds()
    json_seeds()
    profile_seeds()
    safetensors_seeds()
    config_seeds()
    text_seeds()
    chat_seeds()
    constraint_seeds()
    setting_seeds()
    proto_seeds()


if __name__ == "__main__":
    main()
