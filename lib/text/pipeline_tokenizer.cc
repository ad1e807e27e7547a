#include "lib/text/pipeline_tokenizer.h"

#include <algorithm>
#include <utility>

#include "lib/base/strings.h"
#include "lib/text/stage_decoder.h"
#include "lib/text/utf8.h"

namespace lumen::text {

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline) : pipeline_(std::move(pipeline)) {
  vocab_size_ = pipeline_.vocabulary->size();
  for (const AddedToken& token : pipeline_.added.all()) {
    vocab_size_ = std::max(vocab_size_, token.id + 1);
  }
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  encode_text(text, 0, options.parse_special, ids, nullptr);
  pipeline_.post_processor.apply(ids, options.add_special);
  return ids;
}

void PipelineTokenizer::encode_rest(std::string_view text, size_t begin,
                                    std::optional<bool> parse_special, std::vector<int32_t>& ids,
                                    std::vector<Checkpoint>* checkpoints) const {
  if (!pipeline_.post_processor.keeps_text()) {
    return Tokenizer::encode_rest(text, begin, parse_special, ids, checkpoints);
  }
  encode_text(text, begin, parse_special, ids, checkpoints);
}

void PipelineTokenizer::encode_text(std::string_view text, size_t begin,
                                    std::optional<bool> parses_special, std::vector<int32_t>& ids,
                                    std::vector<Checkpoint>* checkpoints) const {
  check_length(text);
  std::string repaired;
  if (!is_valid_utf8(text.substr(begin))) {
    repaired = str(text.substr(0, begin), to_valid_utf8(text.substr(begin)));
    text = repaired;
    checkpoints = nullptr;  // its bytes are others
  }
  const bool parse_special = parses_special.value_or(true);
  const std::unique_ptr<Model::State> state = pipeline_.model->make_state();
  const auto found = [&](const Fragment& raw) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      if (checkpoints != nullptr && pipeline_.added.is_boundary(text, raw)) {
        checkpoints->push_back({raw.end, ids.size(), raw.end + pipeline_.added.lookahead()});
      }
      return;
    }
    std::string normal(text.substr(raw.begin, raw.end - raw.begin));
    if (pipeline_.normalizer) pipeline_.normalizer->apply(normal);
    check_normalized_size(normal.size());
    pipeline_.added.split(normal, true, parse_special, [&](const Fragment& part) {
      if (part.id >= 0) return ids.push_back(part.id);
      encode_words(normal.substr(part.begin, part.end - part.begin),
                   raw.begin == 0 && part.begin == 0, state.get(), ids);
    });
  };
  pipeline_.added.split(text, false, parse_special, found, begin);
}

void PipelineTokenizer::encode_words(std::string text, bool at_start, Model::State* state,
                                     std::vector<int32_t>& ids) const {
  Words words;
  words.text = std::move(text);
  words.spans.push_back({0, static_cast<uint32_t>(words.text.size())});
  words.first_at_start = at_start;
  if (pipeline_.pre_tokenizer) pipeline_.pre_tokenizer->apply(words);
  for (const Words::Span& span : words.spans) {
    if (span.end > span.begin) pipeline_.model->tokenize(words.word(span), state, ids);
  }
}

std::unique_ptr<TokenDecoder> PipelineTokenizer::make_decoder(bool skip_special) const {
  return std::make_unique<StageDecoder>(
      pipeline_.decoders, [this, skip_special](int32_t id, DecodeStage& stage) {
        if (skip_special && is_special(id)) return;
        const AddedToken* added = pipeline_.added.find(id);
        if (added != nullptr || pipeline_.vocabulary->contains(id)) {
          stage.push(added != nullptr ? added->content : pipeline_.vocabulary->text(id));
        }
      });
}

std::string_view PipelineTokenizer::token_text(int32_t id) const {
  const AddedToken* added = pipeline_.added.find(id);
  return added != nullptr ? added->content : pipeline_.vocabulary->text(id);
}

std::vector<std::string> PipelineTokenizer::token_bytes() const {
  BytesDecoder decoder(pipeline_.decoders);
  return bytes_by_id(*this, [&](int32_t id) { return decoder.bytes(token_text(id)); });
}

std::optional<int32_t> PipelineTokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = pipeline_.added.find(token)) return added->id;
  const int32_t id = pipeline_.vocabulary->find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* added = pipeline_.added.find(id);
  return added != nullptr && added->special;
}

std::vector<int32_t> PipelineTokenizer::end_tokens() const {
  if (!pipeline_.special.eos) return {};
  return {*pipeline_.special.eos};
}

bool PipelineTokenizer::adds_bos() const {
  std::vector<int32_t> ids;
  pipeline_.post_processor.apply(ids, true);
  return !ids.empty() && pipeline_.special.bos == ids.front();
}

}  // namespace lumen::text
