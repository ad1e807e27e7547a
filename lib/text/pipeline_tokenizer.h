// The tokenizer of a tokenizer.json: normalizer, pre-tokenizer, model, post-processor, decoders,
// composed as in Hugging Face tokenizers (https://github.com/huggingface/tokenizers).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/text/added_tokens.h"
#include "lib/text/decoder.h"
#include "lib/text/model.h"
#include "lib/text/normalizer.h"
#include "lib/text/post_processor.h"
#include "lib/text/pre_tokenizer.h"
#include "lib/text/tokenizer.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

struct Pipeline {
  std::string kind;
  std::unique_ptr<Vocabulary> vocabulary;       // of the model, which refers to it
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  std::vector<Decoder> decoders;
  SpecialIds special;
};

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline);

  std::string kind() const override { return pipeline_.kind; }
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override;
  void encode_rest(std::string_view text, size_t begin, std::optional<bool> parse_special,
                   std::vector<int32_t>& ids, std::vector<Checkpoint>* checkpoints) const override;
  std::unique_ptr<TokenDecoder> make_decoder(bool skip_special) const override;
  int32_t vocab_size() const override { return vocab_size_; }
  std::string_view token_text(int32_t id) const override;
  std::vector<std::string> token_bytes() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  bool is_special(int32_t id) const override;
  const SpecialIds& special_ids() const override { return pipeline_.special; }
  std::vector<int32_t> end_tokens() const override;
  bool adds_bos() const override;

 private:
  // Without the post-processor.
  void encode_text(std::string_view text, size_t begin, std::optional<bool> parse_special,
                   std::vector<int32_t>& ids, std::vector<Checkpoint>* checkpoints) const;
  void encode_words(std::string text, bool at_start, Model::State* state,
                    std::vector<int32_t>& ids) const;

  Pipeline pipeline_;
  int32_t vocab_size_ = 0;
};

}  // namespace lumen::text
