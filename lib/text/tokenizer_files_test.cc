// Binary vocabularies and directories, made on the spot: what is read and what is refused.
#include <filesystem>
#include <fstream>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/test_files.h"
#include "lib/text/gguf_files.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/vocabulary.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::text {
namespace {

using Ids = std::vector<int32_t>;
using io::append_raw;

// 0 if `load` succeeds.
template <typename Load>
int load_refusal(Load&& load) {
  try {
    load();
  } catch (const Error& error) {
    return error.exit_code();
  }
  return 0;
}
constexpr int kMalformed = static_cast<int>(ErrorKind::kMalformed);

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}
std::string piece(std::string_view text, float score, uint64_t type) {
  std::string message = field(1, text) + varint(2 << 3 | 5);
  append_raw(message, score);
  return field(1, message + field(3, type));
}

// A BPE model: <unk> <s> </s>, 256 bytes, then ▁ h i hi ▁hi, and a piece that is NUL.
std::string sentencepiece_model(const std::string& normalizer = "") {
  std::string model = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    model += piece(byte_token(static_cast<uint8_t>(byte)), 0, 6);
  }
  model += piece("▁", -3, 1) + piece("h", -4, 1) + piece("i", -5, 1) + piece("hi", -1, 1) +
           piece("▁hi", -2, 1) + piece(std::string_view("\0", 1), -9, 1);
  // BPE with byte fallback.
  model += field(2, field(3, uint64_t{2}) + field(35, uint64_t{1}));
  return model + field(3, normalizer);
}

std::string charsmap(uint32_t trie_bytes, const std::string& trie, const std::string& texts) {
  std::string blob;
  append_raw(blob, trie_bytes);
  return field(2, blob + trie + texts);
}

std::string llama2c_file() {
  std::string file;
  append_raw<int32_t>(file, 8);
  const auto token = [&](std::string_view text, float score) {
    append_raw(file, score);
    append_raw(file, static_cast<int32_t>(text.size()));
    file += text;
  };
  token("<unk>", 0);
  token("\n<s>\n", 0);
  token("\n</s>\n", 0);
  for (int byte = 0; byte < 256; ++byte) token(byte_token(static_cast<uint8_t>(byte)), 0);
  token(" ", -3);
  token("h", -4);
  token("i", -5);
  token("hi", -1);
  token(" hi", -2);
  return file;
}

io::GgufBuilder gguf(std::string_view model, const std::vector<std::string>& tokens) {
  io::GgufBuilder builder;
  builder.key("tokenizer.ggml.model", model).strings("tokenizer.ggml.tokens", tokens);
  return builder;
}
std::shared_ptr<const Tokenizer> load_gguf(const io::GgufBuilder& builder) {
  const auto file = io::parse_gguf(io::buffer_of(builder.finish()), "test.gguf");
  return load_tokenizer(*file);
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("a file of more bytes than any vocabulary has is not looked through") {
  const std::string path = testing::temporary_directory() + "/tokenizer.bin";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // has no blocks on the disk
  const std::string error = testing::refusal(ErrorKind::kMalformed, [&] { load_tokenizer(path); });
  CHECK(testing::contains(error, "limit tokenizer-bytes"));
}

}  // namespace

TEST_CASE("A sentencepiece model encodes and decodes", "[tokenizer_files]") {
  const auto tokenizer = parse_sentencepiece(sentencepiece_model(), nullptr);
  CHECK(tokenizer->vocab_size() == 265);
  CHECK(tokenizer->encode("hi é") == Ids{1, 263, 259, 0xC3 + 3, 0xA9 + 3});
  CHECK(tokenizer->encode("<s>", {.add_special = false, .parse_special = true}) == Ids{1});
  const Ids ids = {1, 263, 259, 0xC3 + 3, 0xA9 + 3, 0xC3 + 3, 2};
  CHECK(tokenizer->decode(ids) == "hi é\uFFFD");
  CHECK(tokenizer->adds_bos());
  CHECK(tokenizer->end_tokens() == Ids{2});
  CHECK(tokenizer->id_of(std::string_view("\0", 1)) == 264);
}

TEST_CASE("Hostile sentencepiece models never reach the library", "[tokenizer_files]") {
  const auto load = [](const std::string& bytes) {
    return load_refusal([&] { parse_sentencepiece(bytes, nullptr); });
  };
  const std::string good = sentencepiece_model();
  REQUIRE(load(good) == 0);
  CHECK(load(good + piece("", 0, 1)) == kMalformed);
  CHECK(load(good + piece(std::string(100'000, 'a'), 0, 1)) == kMalformed);
  CHECK(load(good + piece("\xFF", 0, 1)) == kMalformed);
  CHECK(load(good + piece("q", std::numeric_limits<float>::quiet_NaN(), 1)) == kMalformed);
  CHECK(load(good + piece("q", 0, 9)) == kMalformed);
  CHECK(load(good + field(2, field(44, " \xE2\x81\x87 "))) == 0);  // what is shown for <unk>
  CHECK(load(good + field(2, field(44, "\xE2\x81"))) == kMalformed);
  CHECK(load(good + piece("hi", 0, 1)) == kMalformed);  // twice
  CHECK(load(good + "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F") == kMalformed);
  CHECK(load(good + std::string(11, '\xFF')) == kMalformed);  // endless number
  CHECK(load(good + "\x0B") == kMalformed);                   // group
  CHECK(load(good + field(3, charsmap(3, "abc", ""))) == kMalformed);
  CHECK(load(good + field(3, charsmap(1u << 31, "", ""))) == kMalformed);
  CHECK(load(good + field(3, field(2, "ab"))) == kMalformed);
  CHECK(load(good + field(3, charsmap(1024, std::string(1024, '\0'), std::string(2, '\0')))) == 0);
  CHECK(load(good + field(3, charsmap(1024, std::string(1024, '\0'),
                                      std::string(1000, 'x') + '\0'))) == kMalformed);
  // A trie all of whose units point far outside.
  std::string trie;
  for (int i = 0; i < 256; ++i) append_raw<uint32_t>(trie, 0x7FFFFFFF);
  CHECK(load(good + field(3, charsmap(1024, trie, std::string("x\0", 2)))) == kMalformed);
  for (size_t size = 1; size < good.size(); size += 7) load(good.substr(0, size));
  for (size_t i = 0; i < good.size(); i += 5) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    load(bad);
  }
}

TEST_CASE("The longest pieces load on a small stack", "[tokenizer_files]") {
  const std::string longest = piece(std::string(limits::kPieceBytes, 'a'), -1, 4);
  CHECK(load_refusal([&] { parse_sentencepiece(sentencepiece_model() + longest, nullptr); }) == 0);
}

TEST_CASE("tokenizer.bin encodes as run.c", "[tokenizer_files]") {
  const auto tokenizer = parse_llama2c(llama2c_file());
  CHECK(tokenizer->encode("hi é") == Ids{1, 263, 259, 0xC3 + 3, 0xA9 + 3});
  CHECK(tokenizer->encode("") == Ids{1});
  CHECK(tokenizer->decode(Ids{263, 259, 0xC3 + 3, 0xA9 + 3}) == "hi é");
  const std::string good = llama2c_file();
  const auto load = [](const std::string& bytes) {
    return load_refusal([&] { parse_llama2c(bytes); });
  };
  CHECK(load("") == kMalformed);
  CHECK(load(good.substr(0, 101)) == kMalformed);
  CHECK(load(good.substr(0, good.size() - 1)) == kMalformed);
  std::string bad = good;
  bad[3] = '\x7F';  // longest token
  CHECK(load(bad) == kMalformed);
  bad = good;
  bad[8] = '\xFF';  // length of the first token
  CHECK(load(bad) == kMalformed);
}

TEST_CASE("GGUF vocabularies encode as llama.cpp", "[tokenizer_files]") {
  std::vector<std::string> tokens = {"Ġ", "h", "i", "hi", "Ġhi", "<|eot_id|>", "!"};
  io::GgufBuilder builder = gguf("gpt2", tokens);
  builder.strings("tokenizer.ggml.merges", {"h i", "Ġ hi"})
      .key("tokenizer.ggml.pre", "llama-bpe")
      .u32("tokenizer.ggml.bos_token_id", 6)
      .u32("tokenizer.ggml.eos_token_id", 0);
  const auto tokenizer = load_gguf(builder);
  CHECK(tokenizer->encode("hi hi<|eot_id|>") == Ids{6, 3, 4, 5});
  CHECK(tokenizer->encode("hi<|eot_id|>", {.add_special = false}) == Ids{3, 2});
  CHECK(tokenizer->decode(Ids{6, 3, 4, 5}) == "!hi hi<|eot_id|>");
  CHECK(tokenizer->decode(Ids{3, 5}, true) == "hi");
  CHECK(tokenizer->end_tokens() == Ids{0, 5});
}

TEST_CASE("Gemma 4's GGUF vocabularies merge characters by rank, and line ends are whole",
          "[tokenizer_files]") {
  std::vector<std::string> tokens = {"<bos>",   "<turn|>", "\u2581", "h",    "i",
                                     "\u2581h", "hi",      "\n",     "\n\n", "\n\n\n"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(static_cast<uint8_t>(byte)));
  io::GgufBuilder builder = gguf("gemma4", tokens);
  builder.strings("tokenizer.ggml.merges", {"h i", "\u2581 h"})
      .u32("tokenizer.ggml.bos_token_id", 0);
  const auto tokenizer = load_gguf(builder);
  CHECK(tokenizer->encode("hi hi") == Ids{0, 6, 2, 6});  // "h i" comes first, no mark in front
  CHECK(tokenizer->encode("h\n\n\n hz", {.add_special = false}) ==
        Ids{3, 9, 5, 10 + 'z'});  // a byte for what is unknown
  CHECK(tokenizer->decode(Ids{6, 2, 6, 8}) == "hi hi\n\n");
  CHECK(tokenizer->end_tokens() == Ids{1});
  CHECK(load_refusal([&] { load_gguf(gguf("gemma4", tokens)); }) == kMalformed);  // no merges
}

TEST_CASE("GGUF WordPiece words lose their accents", "[tokenizer_files]") {
  const auto tokenizer =
      load_gguf(gguf("bert", {"?", "▁un", "do", "▁!"}).u32("tokenizer.ggml.unknown_token_id", 0));
  CHECK(tokenizer->encode("U\u0301nD\u00F6! x", {.add_special = false}) == Ids{1, 2, 3, 0});
}

TEST_CASE("Wrong GGUF vocabularies are refused", "[tokenizer_files]") {
  const auto load = [](const io::GgufBuilder& builder) {
    return load_refusal([&] { load_gguf(builder); });
  };
  const std::vector<std::string> tokens = {"<unk>", "a", "b"};
  CHECK(load(gguf("llama", tokens)) == 0);
  CHECK(load(gguf("llama", {})) == kMalformed);
  CHECK(load(gguf("magic", tokens)) == static_cast<int>(ErrorKind::kUnsupported));
  CHECK(load(gguf("gpt2", tokens)) == kMalformed);  // no merges
  CHECK(load(gguf("gpt2", tokens).strings("tokenizer.ggml.merges", {"ab"})) == kMalformed);
  CHECK(load(gguf("gpt2", tokens)
                 .strings("tokenizer.ggml.merges", {"a b"})
                 .key("tokenizer.ggml.pre", "magic")) == static_cast<int>(ErrorKind::kUnsupported));
  CHECK(load(gguf("llama", tokens).u32("tokenizer.ggml.bos_token_id", 4'000'000'000)) ==
        kMalformed);
  CHECK(load(gguf("llama", tokens).strings("tokenizer.ggml.scores", {"x", "y", "z"})) ==
        kMalformed);
  CHECK(load(gguf("llama", tokens).strings("tokenizer.ggml.token_type", {"x"})) == kMalformed);
  CHECK(load(gguf("llama", {std::string(5000, 'a')})) == kMalformed);
  // A merge to a token that is missing falls apart again, as in llama.cpp.
  const auto tokenizer = load_gguf(gguf("gpt2", tokens).strings("tokenizer.ggml.merges", {"a b"}));
  CHECK(tokenizer->encode("ab", {.add_special = false}) == Ids{1, 2});
}

TEST_CASE("A path is recognised by its content", "[tokenizer_files]") {
  const std::string directory = testing::temporary_directory();
  const auto fails = [&](const std::string& path) {
    return load_refusal([&] { load_tokenizer(path); });
  };
  CHECK(fails(directory) == static_cast<int>(ErrorKind::kMissing));
  CHECK(fails(directory + "/none") == static_cast<int>(ErrorKind::kMissing));
  write(directory + "/a", "words that are no tokenizer");
  CHECK(fails(directory + "/a") == kMalformed);
  write(directory + "/t.model", "IQ== 0\nIg== 1\n");  // of tiktoken
  CHECK(fails(directory + "/t.model") == static_cast<int>(ErrorKind::kUnsupported));
  const std::string original = testing::temporary_directory();
  write(original + "/tokenizer.model", "IQ== 0\n");
  CHECK(fails(original) == static_cast<int>(ErrorKind::kUnsupported));
  write(directory + "/t.bin", llama2c_file());
  CHECK(load_tokenizer(directory + "/t.bin")->kind() == "llama2.c");
  write(directory + "/x.model", sentencepiece_model());
  CHECK(load_tokenizer(directory + "/x.model")->encode("<s>").size() == 5);

  // A directory with a single GGUF model and no other vocabulary has that of the model.
  const std::string single = testing::temporary_directory();
  write(single + "/m.gguf",
        gguf("bert", {"?", "▁un", "do", "▁!"}).u32("tokenizer.ggml.unknown_token_id", 0).finish());
  CHECK(load_tokenizer(single)->vocab_size() == 4);
  write(single + "/tokenizer.model", sentencepiece_model());
  CHECK(load_tokenizer(single)->vocab_size() == 265);

  // In a Hugging Face directory control tokens are parsed and the configuration counts.
  write(directory + "/tokenizer.model", sentencepiece_model());
  write(directory + "/tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "added_tokens_decoder":
           {"265": {"content": "<|user|>", "special": true}}})");
  auto tokenizer = load_tokenizer(directory);
  CHECK(tokenizer->encode("<s><|user|>") == Ids{1, 265, 2});
  CHECK(tokenizer->vocab_size() == 266);
  CHECK(tokenizer->decode(Ids{265, 263}) == "<|user|> hi");
  CHECK(tokenizer->decode(Ids{265, 263}, true) == "hi");

  write(directory + "/tokenizer.json",
        R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "</s>": 1}}})");
  write(directory + "/tokenizer_config.json", R"({"eos_token": "</s>"})");
  tokenizer = load_tokenizer(directory);
  CHECK(tokenizer->encode("a") == Ids{0});
  CHECK(tokenizer->end_tokens() == Ids{1});
}

TEST_CASE("A vocabulary in a file of any name becomes files that a directory is read by",
          "[tokenizer_files]") {
  const std::string place = testing::temporary_directory();
  const auto names = [&](const std::string& path) {
    const std::string directory = testing::temporary_directory();
    std::string all;
    for (const TokenizerFile& file : vocabulary_files(path)) {
      write(directory + "/" + file.name, file.content);
      all += file.name + " ";
    }
    if (!all.empty())
      CHECK(load_tokenizer(directory)->encode("hi") == load_tokenizer(path)->encode("hi"));
    return all;
  };
  write(place + "/x.model", sentencepiece_model());
  CHECK(names(place + "/x.model") == "tokenizer.model ");
  write(place + "/x.json", R"({"model": {"type": "WordLevel", "vocab": {"hi": 0, "</s>": 1}}})");
  CHECK(names(place + "/x.json") == "tokenizer.json ");
  write(place + "/tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK(names(place + "/x.json") == "tokenizer.json tokenizer_config.json ");
  write(place + "/x.bin", llama2c_file());
  CHECK(names(place + "/x.bin") == "tokenizer.model tokenizer.json tokenizer_config.json ");
  write(place + "/x", "words that are no tokenizer");
  CHECK(load_refusal([&] { vocabulary_files(place + "/x"); }) == kMalformed);
}

TEST_CASE("A vocabulary with tokens that are not UTF-8 has no form in JSON", "[tokenizer_files]") {
  for (const char* model : {"gpt2", "t5"}) {
    INFO(model);
    const auto files = [&](const std::string& token) {
      io::GgufBuilder builder = gguf(model, {"<pad>", "</s>", "<unk>", "a", "b", token});
      builder.strings("tokenizer.ggml.merges", {"a b"});
      builder.u32("tokenizer.ggml.unknown_token_id", 2).u32("tokenizer.ggml.eos_token_id", 1);
      return tokenizer_files(*io::parse_gguf(io::buffer_of(builder.finish()), "test.gguf"));
    };
    CHECK(files("ab\xFF").empty());
    CHECK_FALSE(files("ab").empty());
  }
}

TEST_CASE("llama2.c's vocabularies become files that give the same tokens", "[tokenizer_files]") {
  LUMEN_SHARED_DATA(root, "tokenizers/spm");
  const std::string path = root + "/llama2.tokenizer.bin";
  const std::string directory = testing::temporary_directory();
  for (const TokenizerFile& file : vocabulary_files(path)) {
    write(directory + "/" + file.name, file.content);
  }
  const auto original = load_tokenizer(path), copy = load_tokenizer(directory);
  CHECK(copy->kind() == "BPE (tokenizer.json)");
  CHECK(copy->vocab_size() == original->vocab_size());
  CHECK(copy->adds_bos());
  const EncodeOptions plain = {.add_special = true, .parse_special = false};
  for (const char* text : {"Once upon a time", " two  spaces \n\n",
                           "naïve 東京 🙂🏽 ☃\u0301", "<s>x</s>", "<0x0A> \t"}) {
    INFO(text);
    const Ids ids = original->encode(text, plain);
    CHECK(copy->encode(text, plain) == ids);
    CHECK(copy->decode(ids, true) == original->decode(ids, true));
  }
}

TEST_CASE("Vocabularies from before tokenizer.json are read", "[tokenizer_files]") {
  const std::string bpe = testing::temporary_directory();
  write(bpe + "/vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3})");
  write(bpe + "/merges.txt", "#version: 0.2\na b\n");
  CHECK(load_tokenizer(bpe)->encode("ab b") == Ids{2, 3, 1});
  const std::string bert = testing::temporary_directory();
  write(bert + "/vocab.txt", "[UNK]\n[CLS]\n[SEP]\nun\n##do\n");
  CHECK(load_tokenizer(bert)->encode("Undo x") == Ids{1, 3, 4, 0, 2});
}

TEST_CASE("A vocabulary inside a GGUF file becomes files that give the same tokens",
          "[tokenizer_files]") {
  for (const char* path : {"testdata/models/random-spm.gguf", "testdata/builtin/lumen-tiny.gguf"}) {
    INFO(path);
    const auto file = io::read_gguf(testing::source_path(path));
    const auto original = load_tokenizer(*file);
    const std::vector<TokenizerFile> files = tokenizer_files(*file);
    REQUIRE(files.size() >= 2);
    const std::string directory = testing::temporary_directory();
    for (const TokenizerFile& each : files) write(directory + "/" + each.name, each.content);
    const auto copy = load_tokenizer(directory);
    CHECK(copy->vocab_size() == original->vocab_size());
    CHECK(copy->adds_bos() == original->adds_bos());
    CHECK(copy->special_ids().eos == original->special_ids().eos);
    for (const char* text :
         {"", "Hello, world!", "  two  spaces\n\nand 12345 <s> </s>",
          "<|im_start|>user\nWhat is it?<|im_end|>\n", "na\xC3\xAFve 東京 🙂"}) {
      INFO(text);
      for (const bool parse : {false, true}) {
        const EncodeOptions options = {.add_special = true, .parse_special = parse};
        const Ids ids = original->encode(text, options);
        CHECK(copy->encode(text, options) == ids);
        CHECK(copy->decode(ids, true) == original->decode(ids, true));
      }
    }
    for (int32_t id = 0; id < original->vocab_size(); ++id) {
      REQUIRE(copy->token_text(id) == original->token_text(id));
    }
  }
}

// GGUF does not say it: the model's name does, and tokenizer.json has to.
TEST_CASE("Control tokens that take white space along become files that say so",
          "[tokenizer_files]") {
  const std::vector<std::string> tokens = {"a", "b", "Ġ", "Ċ", "<|user|>", "<|end|>"};
  constexpr int32_t kNormal = 1, kControl = 3;
  std::string types;  // an array as it stands in the file
  append_raw<uint32_t>(types, 5);
  append_raw<uint64_t>(types, tokens.size());
  for (const std::string& token : tokens) {
    append_raw(types, token.starts_with("<|") ? kControl : kNormal);
  }
  io::GgufBuilder builder = gguf("gpt2", tokens);
  builder.strings("tokenizer.ggml.merges", {"a b"})
      .key("general.name", "Phi-3 mini")
      .raw("tokenizer.ggml.token_type", 9, types);
  const auto file = io::parse_gguf(io::buffer_of(builder.finish()), "test.gguf");
  const std::string directory = testing::temporary_directory();
  for (const TokenizerFile& each : tokenizer_files(*file)) {
    write(directory + "/" + each.name, each.content);
  }
  const char* text = "a <|user|> \nb<|end|>\n";
  const Ids ids = {0, 2, 4, 1, 5};
  CHECK(load_tokenizer(*file)->encode(text) == ids);
  CHECK(load_tokenizer(directory)->encode(text) == ids);
}

TEST_CASE("Broken tokenizer files of the shared data are refused", "[tokenizer_files]") {
  LUMEN_SHARED_DATA(root, "formats/bad-tokenizers");
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    INFO(entry.path().string());
    CHECK(load_refusal([&] { load_tokenizer(entry.path().string()); }) == kMalformed);
  }
}

}  // namespace lumen::text
