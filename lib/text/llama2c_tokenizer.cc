// The tokenizer.bin of llama2.c (https://github.com/karpathy/llama2.c, run.c).
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"
#include "lib/text/score_merges.h"
#include "lib/text/stage_decoder.h"
#include "lib/text/tokenizer_formats.h"

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

}  // namespace lumen::text
