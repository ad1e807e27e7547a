// Tokenizers: text to token ids and back, from every file format that carries a vocabulary.
//
// One class covers all of them; `load_tokenizer` decides by the file's content. Ids agree exactly
// with the program that defines the format: Hugging Face tokenizers for tokenizer.json,
// sentencepiece for .model, llama.cpp for GGUF, llama2.c for tokenizer.bin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::io {
class GgufFile;
}

namespace lumen::text {

struct EncodeOptions {
  bool add_special = true;    // BOS, EOS, [CLS]… by the model's own rules
  bool parse_special = true;  // control tokens spelled in the text become their ids
};

// The ids a model gives a meaning of its own; absent where the file names none.
struct SpecialIds {
  std::optional<int32_t> bos, eos, unk, pad, sep, mask;
};

// A loaded vocabulary with its rules. Immutable: all methods may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // What the file is, for messages and --inspect: "BPE (tokenizer.json)", "sentencepiece", ….
  virtual std::string kind() const = 0;

  // Token ids of `text`. Bytes that are not UTF-8 count as U+FFFD, except where the format has
  // tokens for bytes and its own program passes them through. Throws Error(kMalformed) if the text
  // has a character without a token and the file names no unknown token; kResource beyond
  // limits::kPromptBytes.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // Text of `ids`; with `skip_special` without the control tokens. Ids that the vocabulary does not
  // have give no text (a model's head may be wider than its vocabulary). The result may end or
  // contain incomplete UTF-8 if the ids do.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special = false) const = 0;

  // One more than the largest id.
  virtual int32_t vocab_size() const = 0;

  // The token as spelled in the file ("▁the", "Ġthe", "<0x0A>"); "" where no token has this id.
  virtual std::string_view token_text(int32_t id) const = 0;

  // The id of the token so spelled, special tokens included.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  // True for control tokens, which `decode` leaves out with `skip_special`.
  virtual bool is_special(int32_t id) const = 0;

  virtual const SpecialIds& special_ids() const = 0;

  // Ids that the vocabulary itself names as the end of a text or turn: eos, and GGUF's eot, eom.
  // config.json and generation_config.json may name more; that union is the caller's.
  virtual std::vector<int32_t> end_tokens() const = 0;

  // Whether `add_special` puts BOS first. A chat template that writes BOS itself must not get two.
  virtual bool adds_bos() const = 0;

  // The chat template stored beside the vocabulary is not read here: see chat_template.h.

 protected:
  Tokenizer() = default;
  friend class TokenStream;

  // State of an incremental decode, see TokenStream.
  struct StreamState {
    bool at_start = true;  // nothing was decoded yet
    bool skip_special = false;
    bool previous_ended_word = false;  // decoders that put spaces between words
    std::string pending;               // bytes waiting for the rest of their character
  };
  // Appends to `out` the text that token `id` adds after the tokens before it; incomplete
  // characters stay in state.pending. Allocates only if `out` or `pending` must grow.
  virtual void stream(StreamState& state, int32_t id, std::string& out) const = 0;
  // Appends what is still held back.
  virtual void finish(StreamState& state, std::string& out) const = 0;
};

// Incremental decode for streaming: the texts of all pushes and of finish, joined, equal
// decode(all ids), and each piece ends on a character boundary. Not thread-safe.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);

  // Appends the text that became complete. No heap allocation if `out` has room for
  // limits::kPieceBytes more bytes.
  void push(int32_t id, std::string& out);
  // Appends what was held back and starts anew.
  void finish(std::string& out);

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Tokenizer::StreamState state_;
};

// Loads the vocabulary at `path`: a tokenizer.json, a sentencepiece .model, a llama2.c
// tokenizer.bin, a GGUF, a vocab.txt or vocab.json, or a directory holding tokenizer.json,
// tokenizer.model, vocab.json with merges.txt, or vocab.txt (in this order), with
// tokenizer_config.json, special_tokens_map.json and added_tokens.json beside it taken into
// account. Throws Error: kMissing (no such file, or none of these in the directory), kMalformed
// (broken, hostile or over a limit of base/limits.h), kUnsupported (names the component and its
// place).
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

// The vocabulary inside a GGUF file (keys tokenizer.ggml.*). Errors as above. Copies what it
// needs: `file` need not outlive it.
std::shared_ptr<const Tokenizer> load_tokenizer(const io::GgufFile& file);

}  // namespace lumen::text
