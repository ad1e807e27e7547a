// Every expected result of the shared data, for every format.
#include <array>
#include <bit>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <sstream>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer.h"

namespace lumen::text {
namespace {

using Ids = std::vector<int32_t>;

// FIPS 180-4, in hex.
std::string sha256(std::span<const std::byte> data) {
  // The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
  std::array<uint32_t, 64> constants;
  std::array<uint32_t, 8> state;
  size_t count = 0;
  for (uint32_t n = 2; count < constants.size(); ++n) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= n && prime; ++d) prime = n % d != 0;
    if (!prime) continue;
    const auto fraction = [](long double x) {
      return static_cast<uint32_t>(std::floor((x - std::floor(x)) * 4294967296.0L));
    };
    if (count < state.size()) state[count] = fraction(std::sqrt(static_cast<long double>(n)));
    constants[count++] = fraction(std::cbrt(static_cast<long double>(n)));
  }
  std::vector<uint8_t> message;
  for (const std::byte b : data) message.push_back(static_cast<uint8_t>(b));
  message.push_back(0x80);
  while (message.size() % 64 != 56) message.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) {
    message.push_back(static_cast<uint8_t>(data.size() * 8 >> shift));
  }
  for (size_t block = 0; block < message.size(); block += 64) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) {
      const uint8_t* b = &message[block + 4 * i];
      w[i] = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                          ((e & f) ^ (~e & g)) + constants[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += added[i];
  }
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

// encode and decode of every case of one expectation file.
void check_cases(const Tokenizer& tokenizer, const std::string& expected_path,
                 const EncodeOptions& plain, const EncodeOptions& special) {
  const io::Json expected = io::read_json(expected_path);
  for (const io::Json& c : *io::find(expected, "cases")) {
    const std::string text = io::get_string(c, "text");
    INFO(expected_path << ": " << quoted(text));
    const Ids ids = io::find(c, "ids")->get<Ids>();
    CHECK(tokenizer.encode(text, plain) == ids);
    const io::Json* with_special = io::find(c, "ids_special");
    CHECK(tokenizer.encode(text, special) ==
          (with_special != nullptr ? with_special->get<Ids>() : ids));
    if (io::find(c, "decoded") != nullptr) {
      CHECK(tokenizer.decode(ids) == io::get_string(c, "decoded"));
    }
  }
}

}  // namespace

namespace {

// Number and SHA-256 of the ids (little-endian u32) of long texts.
void check_long(const std::string& expected_path, const std::string& shared,
                const std::function<Ids(const std::string&)>& encode) {
  const io::Json expected = io::read_json(expected_path);
  for (const auto& [file, c] : io::find(expected, "files")->items()) {
    INFO(expected_path << ": " << file);
    const bool corpus = std::filesystem::exists(shared + "/tokenizers/corpora/" + file);
    std::string text = io::read_file(
        shared + (corpus ? "/tokenizers/corpora/" : "/datasets/text/") + file, 64 << 20);
    text.resize(static_cast<size_t>(io::get_int(c, "utf8_bytes", 0, 64 << 20)));
    const Ids ids = encode(text);
    CHECK(static_cast<int64_t>(ids.size()) == io::get_int(c, "n", 0, 1 << 30));
    const Ids first = io::find(c, "first")->get<Ids>();
    CHECK(Ids(ids.begin(),
              ids.begin() + static_cast<ptrdiff_t>(std::min(first.size(), ids.size()))) == first);
    CHECK(sha256(std::as_bytes(std::span(ids))) == io::get_string(c, "sha256_u32le"));
  }
}

std::string read_text(const std::string& path) {
  return io::read_file(path, 64 << 20);
}

}  // namespace

TEST_CASE("tokenizer.json gives the ids and texts of Hugging Face tokenizers", "[tokenizers]") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  for (const auto& entry : std::filesystem::directory_iterator(root + "/hf")) {
    const std::string name = entry.path().filename().string();
    const auto tokenizer = load_tokenizer(entry.path().string() + "/tokenizer.json");
    check_cases(*tokenizer, root + "/expected-hf/" + name + ".json", {.add_special = false},
                {.add_special = true});
    check_long(
        root + "/expected-hf/" + name + ".long.json", root + "/..",
        [&](const std::string& text) { return tokenizer->encode(text, {.add_special = false}); });
  }
}

TEST_CASE("sentencepiece models give the ids and texts of the library", "[tokenizers]") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  for (const auto& entry : std::filesystem::directory_iterator(root + "/expected-spm")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".long.json")) continue;
    const io::Json expected = io::read_json(entry.path().string());
    const auto tokenizer = load_tokenizer(root + "/../" + io::get_string(expected, "model"));
    CHECK(tokenizer->vocab_size() == io::get_int(expected, "vocab_size", 0, 1 << 20));
    const EncodeOptions plain{.add_special = false};
    check_cases(*tokenizer, entry.path().string(), plain, plain);
    const std::string stem = name.substr(0, name.size() - 5);
    check_long(root + "/expected-spm/" + stem + ".long.json", root + "/..",
               [&](const std::string& text) {
                 Ids ids;
                 std::istringstream lines(text);
                 for (std::string line; std::getline(lines, line);) {
                   const Ids more = tokenizer->encode(line, plain);
                   ids.insert(ids.end(), more.begin(), more.end());
                 }
                 return ids;
               });
  }
}

TEST_CASE("GGUF vocabularies give the ids of llama.cpp", "[tokenizers]") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  const std::map<std::string, std::string> json_instead = {
      {"llama-bpe", "llama-3.2-1b-instruct"}, {"qwen2", "qwen2.5-instruct"}, {"smollm", "smollm2"}};
  for (const auto& entry : std::filesystem::directory_iterator(root + "/llamacpp-vocab")) {
    std::string stem = entry.path().string();
    if (!stem.ends_with(".inp")) continue;
    stem.resize(stem.size() - 4);
    std::string name = stem.substr(stem.find("ggml-vocab-") + 11);
    name.resize(name.size() - 5);
    const auto json = json_instead.find(name);
    const auto tokenizer =
        load_tokenizer(json == json_instead.end() ? stem : root + "/hf/" + json->second);
    const std::string inputs = read_text(stem + ".inp");
    std::istringstream outputs(read_text(stem + ".out"));
    const std::string separator = "\n__ggml_vocab_test__\n";
    for (size_t pos = 0; pos < inputs.size();) {
      const size_t end = std::min(inputs.find(separator, pos), inputs.size());
      const std::string text = inputs.substr(pos, end - pos);
      pos = end + separator.size();
      std::string line;
      std::getline(outputs, line);
      std::istringstream numbers(line);
      const Ids ids{std::istream_iterator<int32_t>(numbers), {}};
      INFO(name << ": " << quoted(text));
      CHECK(tokenizer->encode(text, {.add_special = false}) == ids);
    }
    const std::string expected = root + "/expected-llamacpp/" + name + ".json";
    if (std::filesystem::exists(expected)) {
      check_cases(*tokenizer, expected, {.add_special = false}, {.add_special = true});
    }
  }
}

TEST_CASE("Tokens written by transformers come out", "[tokenizers]") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  const std::map<std::string, std::string> names = {{"gpt2_encoded_tokens", "gpt2"},
                                                    {"llama_3.2_encoded", "llama-3.2-1b-instruct"},
                                                    {"llama_encoded", "llama-2"}};
  for (const auto& [file, name] : names) {
    INFO(file);
    const auto tokenizer = load_tokenizer(root + "/hf/" + name);
    const io::Json expected = io::read_json(root + "/expected-swift/" + file + ".json");
    const std::string text = io::get_string(expected, "text");
    const Ids ids = io::find(expected, "token_ids")->get<Ids>();
    CHECK(tokenizer->encode(text) == ids);
    CHECK(tokenizer->decode(ids) == io::get_string(expected, "decoded_text"));
    std::vector<std::string> spelled;
    for (const int32_t id : tokenizer->encode(text, {.add_special = false})) {
      spelled.emplace_back(tokenizer->token_text(id));
    }
    CHECK(spelled == io::find(expected, "bpe_tokens")->get<std::vector<std::string>>());
  }
}

namespace {

double cpu_seconds(const std::function<void()>& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace

// The library alone takes the square of the characters, ten seconds here.
TEST_CASE("a long run of unknown characters is one token, soon found", "[tokenizers]") {
  LUMEN_SHARED_DATA(folder, "tokenizers/spm");
  constexpr size_t kMany = 300'000, kFew = 3;  // of few the library joins them itself
  for (const char* name : {"t5-small.model", "hf_test_sentencepiece_bpe.model", "spm_test.model"}) {
    const auto tokenizer = load_tokenizer(folder + "/" + name);
    for (const char* unknown : {"東", "𒀀"}) {
      const auto text = [&](size_t count) {
        return str("Hello", unknown, " world ", unknown, "123 ", testing::repeated(unknown, count));
      };
      INFO(name << " " << lumen::quoted(unknown));
      Ids ids;
      CHECK(cpu_seconds([&] { ids = tokenizer->encode(text(kMany)); }) < 5);
      CHECK(ids == tokenizer->encode(text(kFew)));
    }
  }
}

TEST_CASE("a long run of flags is normalized in time for its length", "[tokenizers]") {
  LUMEN_SHARED_DATA(folder, "tokenizers/hf");
  const auto tokenizer = load_tokenizer(folder + "/t5-small-compact");
  Ids ids;
  CHECK(cpu_seconds([&] { ids = tokenizer->encode("a" + repeated("🇩🇪", 50'000) + "🇩 b"); }) < 3);
  CHECK(ids == tokenizer->encode("a🇩🇪🇩 b"));
}

}  // namespace lumen::text
