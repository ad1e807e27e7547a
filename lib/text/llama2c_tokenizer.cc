// The tokenizer.bin of llama2.c (https://github.com/karpathy/llama2.c, run.c).
#include <array>
#include <cmath>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"
#include "lib/io/write_gguf.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/score_merges.h"
#include "lib/text/stage_decoder.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

constexpr int32_t kBos = 1, kEos = 2;
constexpr int32_t kFirstByte = 3;  // ids of the bytes 0 to 255 follow

class Llama2cTokenizer : public Tokenizer {
 public:
  explicit Llama2cTokenizer(std::string_view bytes) {
    read(bytes);
    std::array<int32_t, 256> byte_ids;
    for (int32_t byte = 0; byte < 256; ++byte) {
      byte_ids[static_cast<size_t>(byte)] =
          kFirstByte + byte < vocabulary_.size() ? kFirstByte + byte : -1;
    }
    model_ = std::make_unique<Bpe>(score_merges(vocabulary_, scores_, byte_ids));
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const int byte = byte_of_token(vocabulary_.text(id));
      pieces_.set(id, byte < 0 ? vocabulary_.text(id) : std::string(1, static_cast<char>(byte)));
    }
    special_.unk = 0;
    special_.bos = kBos;
    special_.eos = kEos;
    decoders_ = {make_utf8_decoder(), make_leading_strip(" ", 1)};
  }

  std::string kind() const override { return "llama2.c"; }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    check_length(text);
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(kBos);
    if (text.empty()) return ids;
    const std::unique_ptr<Model::State> state = model_->make_state();
    model_->tokenize(str(" ", text), state.get(), ids);
    return ids;
  }

  std::unique_ptr<TokenDecoder> make_decoder(bool skip_special) const override {
    return make_piece_decoder(*this, decoders_, pieces_, skip_special);
  }

  int32_t vocab_size() const override { return vocabulary_.size(); }
  std::string_view token_text(int32_t id) const override { return vocabulary_.text(id); }
  std::vector<std::string> token_bytes() const override {
    return bytes_by_id(*this, [this](int32_t id) { return std::string(pieces_.text(id)); });
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    const int32_t id = vocabulary_.find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  bool is_special(int32_t id) const override { return id >= 0 && id < kFirstByte; }
  const SpecialIds& special_ids() const override { return special_; }
  std::vector<int32_t> end_tokens() const override { return {kBos, kEos}; }
  bool adds_bos() const override { return true; }

  float score(int32_t id) const { return scores_[static_cast<size_t>(id)]; }

 private:
  void read(std::string_view bytes) {
    io::ByteReader reader(std::as_bytes(std::span(bytes)));
    const auto longest = reader.read<int32_t>();
    if (longest < 1 || longest > static_cast<int32_t>(limits::kPieceBytes)) {
      fail(ErrorKind::kMalformed, "the longest token has ", longest, " bytes, expected 1 to ",
           limits::kPieceBytes, " (not a tokenizer of llama2.c?)");
    }
    for (int64_t id = 0; reader.remaining() > 0; ++id) {
      const auto score = reader.read<float>();
      const auto size = reader.read<int32_t>();
      if (!std::isfinite(score) || size < 0 || size > longest) {
        fail(ErrorKind::kMalformed, "token ", id, " has score ", score, " and ", size,
             " bytes, expected a finite score and 0 to ", longest, " bytes");
      }
      vocabulary_.set(id, reader.text(static_cast<uint64_t>(size)));
      scores_.push_back(score);
    }
    if (vocabulary_.size() <= kEos) {
      fail(ErrorKind::kMalformed, vocabulary_.size(), " tokens, expected 3 or more");
    }
  }

  Vocabulary vocabulary_, pieces_;
  std::vector<float> scores_;
  std::unique_ptr<Model> model_;
  std::vector<Decoder> decoders_;
  SpecialIds special_;
};

}  // namespace

std::shared_ptr<const Tokenizer> parse_llama2c(std::string_view bytes) {
  return std::make_shared<Llama2cTokenizer>(bytes);
}

std::shared_ptr<const io::GgufFile> llama2c_as_gguf(std::string_view bytes) {
  const Llama2cTokenizer tokenizer(bytes);
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.token_text(id);
    GgufTokenType type = GgufTokenType::kNormal;
    std::string token;
    if (id < kFirstByte) {  // spelled between line ends
      token = std::array{"<unk>", "<s>", "</s>"}[static_cast<size_t>(id)];
      type = id == 0 ? GgufTokenType::kUnknown : GgufTokenType::kControl;
    } else if (byte_of_token(text) >= 0) {
      token = text;
      type = GgufTokenType::kByte;
    } else {
      for (const char c : text) token += c == ' ' ? std::string(kSpaceMark) : std::string(1, c);
    }
    tokens.push_back(std::move(token));
    scores.push_back(tokenizer.score(id));
    types.push_back(static_cast<int32_t>(type));
  }
  io::GgufWriter writer;
  writer.set("tokenizer.ggml.model", "llama");
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.scores", scores);
  writer.set("tokenizer.ggml.token_type", types);
  std::shared_ptr<const io::GgufFile> file = writer.read_back("the vocabulary as GGUF");
  const std::shared_ptr<const Tokenizer> copy = load_tokenizer(*file);
  std::string text = "One  two\n\t3.14 naïve 東京 Москва 🙂🏽 ";
  const EncodeOptions plain = {.add_special = true, .parse_special = false};
  constexpr int32_t kTokensOfText = 64;
  for (int32_t id = kFirstByte; id <= tokenizer.vocab_size(); ++id) {
    if (id % kTokensOfText == 0 || id == tokenizer.vocab_size()) {
      if (copy->encode(text, plain) != tokenizer.encode(text, plain)) return nullptr;
      text = "x";
    }
    text += tokenizer.decode(std::array{kBos, id});
  }
  return file;
}

}  // namespace lumen::text
