// A model and a vocabulary for tests: what they say is known, and no file is needed.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/strings.h"
#include "lib/runtime/generation/session.h"

namespace lumen::runtime::testing {

// Ids 0…255 are bytes, then <s>, </s> and <turn>.
class ByteTokenizer : public text::Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kTurn = 258, kSize = 259;

  explicit ByteTokenizer(bool adds_bos = true) : adds_bos_(adds_bos) {
    special_.bos = kBos;
    special_.eos = kEos;
  }

  std::string kind() const override { return "bytes (test)"; }
  std::vector<int32_t> encode(std::string_view text,
                              const text::EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && adds_bos_) ids.push_back(kBos);
    while (!text.empty()) {
      int32_t id = static_cast<uint8_t>(text[0]);
      size_t length = 1;
      for (int32_t special = kBos; special < kSize; ++special) {
        if (options.parse_special.value_or(true) && text.starts_with(token_text(special))) {
          id = special;
          length = token_text(special).size();
        }
      }
      ids.push_back(id);
      text.remove_prefix(length);
    }
    return ids;
  }
  std::unique_ptr<text::TokenDecoder> make_decoder(bool skip_special) const override {
    return std::make_unique<Decoder>(*this, skip_special);
  }
  int32_t vocab_size() const override { return kSize; }
  std::string_view token_text(int32_t id) const override {
    constexpr std::string_view kSpecial[] = {"<s>", "</s>", "<turn>"};
    return id >= kBos && id < kSize ? kSpecial[id - kBos] : std::string_view();
  }
  std::vector<std::string> token_bytes() const override {
    return bytes_by_id(*this, [](int32_t id) { return std::string(1, static_cast<char>(id)); });
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    for (int32_t id = kBos; id < kSize; ++id) {
      if (token_text(id) == token) return id;
    }
    return std::nullopt;
  }
  bool is_special(int32_t id) const override { return id >= kBos; }
  const text::SpecialIds& special_ids() const override { return special_; }
  std::vector<int32_t> end_tokens() const override { return {kEos}; }
  bool adds_bos() const override { return adds_bos_; }

 private:
  class Decoder : public text::TokenDecoder {
   public:
    Decoder(const ByteTokenizer& tokenizer, bool skip_special)
        : tokenizer_(tokenizer), skip_special_(skip_special) {}
    void push(int32_t id, std::string& out) override {
      if (id >= kBos) {
        finish(out);
        if (!skip_special_) out += tokenizer_.token_text(id);
        return;
      }
      pending_ += static_cast<char>(id);
      const size_t complete = pending_.size() - incomplete_utf8_suffix(pending_);
      out.append(pending_, 0, complete);
      pending_.erase(0, complete);
    }
    void finish(std::string& out) override {
      out += to_valid_utf8(pending_);
      pending_.clear();
    }

   private:
    const ByteTokenizer& tokenizer_;
    bool skip_special_;
    std::string pending_;
  };

  bool adds_bos_;
  text::SpecialIds special_;
};

// Says `scripts` one after the other, a token of which is certain at every step: a prompt, or a
// token that the script does not have next, begins the next script (the last one repeats), and each
// token after it the next token of the script; after its end comes </s>.
class FakeModel : public LanguageModel {
 public:
  FakeModel(int64_t context, std::vector<std::string> scripts, int64_t max_positions = 0)
      : context_(context),
        max_positions_(std::max(context, max_positions)),
        scripts_(std::move(scripts)),
        pool_(1) {}

  int64_t vocab() const override { return ByteTokenizer::kSize; }
  int64_t context() const override { return context_; }
  int64_t max_positions() const override { return max_positions_; }
  int64_t position() const override { return static_cast<int64_t>(tokens.size()); }
  const MemoryPlan& memory() const override { return memory_; }
  ThreadPool& pool() override { return pool_; }
  void select(int64_t slot) override { LUMEN_CHECK(slot == 0); }

  std::span<const float> feed(std::span<const int32_t> fed,
                              const std::atomic<bool>* stop) override {
    LUMEN_CHECK(!fed.empty() && position() + static_cast<int64_t>(fed.size()) <= context_);
    if (stop && *stop) return {};
    if (fed.size() == 1 && fed[0] == expected()) {
      say_next(fed[0]);
    } else {
      for (const int32_t id : fed) push(id, kNoScript, 0);
      said_.back() = {next_script_, 0};
      if (next_script_ + 1 < scripts_.size()) ++next_script_;
      fed_prompts.emplace_back(fed.begin(), fed.end());
    }
    logits_.clear();
    append_logits();
    return logits_;
  }
  std::span<const float> feed_each(std::span<const int32_t> fed) override {
    LUMEN_CHECK(position() + static_cast<int64_t>(fed.size()) <= context_);
    verified.emplace_back(fed.begin(), fed.end());
    logits_.clear();
    for (const int32_t id : fed) {
      id == expected() ? say_next(id) : push(id, next_script_, 0);
      append_logits();
    }
    return logits_;
  }
  void prepare(std::span<const int64_t>) override {}
  std::span<const float> step(std::span<const int32_t>, std::span<const int32_t> fed) override {
    return feed(fed, nullptr);
  }
  Array logits(std::span<const int32_t> ids) override {
    return Array::zeros(DType::kF32, {static_cast<int64_t>(ids.size()), vocab()});
  }
  void rewind(int64_t position) override {
    LUMEN_CHECK(position <= this->position());
    tokens.resize(static_cast<size_t>(position));
    said_.resize(static_cast<size_t>(position));
  }
  // Its state is the tokens and, for each, what has been said.
  void save_state(int64_t positions,
                  FunctionRef<void(std::span<const std::byte>)> sink) const override {
    sink(std::as_bytes(std::span(said_).first(static_cast<size_t>(positions))));
  }
  void load_state(int64_t positions, int64_t, std::span<const std::byte> bytes) override {
    said_.resize(static_cast<size_t>(positions));
    std::memcpy(said_.data(), bytes.data(), said_.size() * sizeof(Said));
    tokens.resize(said_.size());
  }
  uint64_t position_bytes() const override { return sizeof(Said); }
  std::string fingerprint() const override { return std::string(64, 'f'); }

  std::vector<int32_t> tokens;                    // in the cache
  std::vector<std::vector<int32_t>> fed_prompts;  // the feeds that began a script
  std::vector<std::vector<int32_t>> verified;     // the tokens of each feed_each()

 private:
  static constexpr size_t kNoScript = static_cast<size_t>(-1);
  // How much of which script has been said before the token that is expected next.
  struct Said {
    size_t script, count;
  };

  void push(int32_t id, size_t script, size_t count) {
    tokens.push_back(id);
    said_.push_back({script, count});
  }
  void say_next(int32_t id) { push(id, said_.back().script, said_.back().count + 1); }
  int32_t expected() const {
    if (said_.empty() || said_.back().script == kNoScript) return -1;
    const auto& [index, count] = said_.back();
    const std::string_view script = scripts_.empty() ? std::string_view() : scripts_[index];
    return count < script.size() ? static_cast<uint8_t>(script[count]) : ByteTokenizer::kEos;
  }
  void append_logits() {
    logits_.resize(logits_.size() + ByteTokenizer::kSize, -10.0f);
    const int32_t next = expected();
    if (next >= 0) logits_[logits_.size() - ByteTokenizer::kSize + static_cast<size_t>(next)] = 10;
  }

  int64_t context_, max_positions_;
  std::vector<std::string> scripts_;
  size_t next_script_ = 0;
  ThreadPool pool_;
  std::vector<Said> said_;  // after each token of `tokens`
  std::vector<float> logits_;
  MemoryPlan memory_;
};

// A session around a FakeModel, with the template
// "<s>", then "role:content<turn>" for every message, then "assistant:"; or without one.
inline Session fake_session(int64_t context, std::vector<std::string> scripts,
                            bool with_template = true) {
  constexpr const char* kTemplate =
      "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}<turn>{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}";
  std::optional<text::ChatTemplate> chat_template;
  if (with_template) chat_template = text::ChatTemplate::parse(kTemplate, "test");
  io::ModelFiles files;
  files.generation_config = io::Json::object();
  Session session{"fake",
                  std::move(files),
                  PromptFormat(std::make_shared<ByteTokenizer>(), std::move(chat_template), {}),
                  std::make_unique<FakeModel>(context, std::move(scripts)),
                  nullptr,
                  0,
                  {}};
  session.constraints = std::make_shared<ConstraintSource>(session.format.tokenizer(),
                                                           session.format.end_token_ids());
  return session;
}

}  // namespace lumen::runtime::testing
