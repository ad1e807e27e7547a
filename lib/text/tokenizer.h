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
struct GgufFile;
}

namespace lumen::text {

struct EncodeOptions {
  // BOS, EOS, [CLS]… by the model's own rules.
  bool add_special = true;
  // Control tokens spelled in the text become their ids. Unset: as the format's own program does
  // by default: tokenizer.json always, GGUF together with add_special, sentencepiece and llama2.c
  // never. A rendered chat template needs true, text that must stay text needs false.
  std::optional<bool> parse_special = std::nullopt;
};

// The ids a model gives a meaning of its own; absent where the file names none.
struct SpecialIds {
  std::optional<int32_t> bos, eos, unk, pad, sep, mask;
};

// Turns ids into text one after the other; see Tokenizer::make_decoder. Not thread-safe.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Appends to `out` the text that is certain once `id` has followed the ids before it.
  virtual void push(int32_t id, std::string& out) = 0;
  // Appends the rest and returns to the initial state.
  virtual void finish(std::string& out) = 0;
};

// A loaded vocabulary with its rules. Immutable: all methods may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // What the file is, for messages and --inspect: "BPE (tokenizer.json)", "sentencepiece", ….
  virtual std::string kind() const = 0;

  // Token ids of `text`, in linear or n log n time. Bytes that are not UTF-8 count as
  // U+FFFD, except where the format's own program passes them through. Characters without a token
  // become the unknown token, or nothing where the format has none. Throws Error(kResource) for
  // text longer than limits::kPromptBytes; kMalformed if the unknown token is needed and missing.
  virtual std::vector<int32_t> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // A place behind a control token from which on a text is encoded as it is without what stands
  // before: its byte and the number of ids up to there, which are the same for all texts that begin
  // with the same `known` bytes.
  struct Checkpoint {
    size_t text, ids, known;
  };

  // Appends to `ids` what encode() gives without add_special for `text` from byte `begin` on: 0, or
  // the place of a checkpoint of this text or another whose `known` bytes begin this one.
  // `checkpoints`, unless null, receives further ones, in order; there may be none. See
  // GrowingText, which keeps track of them. Throws as encode().
  virtual void encode_rest(std::string_view text, size_t begin, std::optional<bool> parse_special,
                           std::vector<int32_t>& ids, std::vector<Checkpoint>* checkpoints) const;

  // Text of `ids`; with `skip_special` without the control tokens. Ids that the vocabulary does not
  // have give no text (a model's head may be wider than its vocabulary). Bytes that form no
  // character come out as U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The state machine behind decode and TokenStream.
  virtual std::unique_ptr<TokenDecoder> make_decoder(bool skip_special) const = 0;

  // One more than the largest id.
  virtual int32_t vocab_size() const = 0;

  // The token as spelled in the file ("▁the", "Ġthe", "<0x0A>"); "" where no token has this id.
  virtual std::string_view token_text(int32_t id) const = 0;

  // The bytes that each token adds to a text that has begun, by id: what `decode` gives for it, but
  // with parts of characters as they are. "" for control tokens and ids without a token. Throws
  // Error(kUnsupported) if the text of a token depends on the tokens beside it.
  virtual std::vector<std::string> token_bytes() const = 0;

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

 protected:
  Tokenizer() = default;
  // What token_bytes() returns, where `bytes(id)` are those of a token that is not special.
  template <typename Bytes>
  static std::vector<std::string> bytes_by_id(const Tokenizer& tokenizer, const Bytes& bytes) {
    std::vector<std::string> all(static_cast<size_t>(tokenizer.vocab_size()));
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.is_special(id)) all[static_cast<size_t>(id)] = bytes(id);
    }
    return all;
  }
  // What encode() refuses before anything else: text over limits::kPromptBytes.
  static void check_length(std::string_view text);
};

// The characters of `text` that encode() drops, as "'x', 'y' and 3 more", or "": a character
// tokenizer has no tokens for those that its own text lacked. Blanks, of which some tokenizers drop
// one that is alone, do not count.
std::string dropped_characters(const Tokenizer& tokenizer, std::string_view text);

// Incremental decode for streaming: the texts of all pushes and of finish, joined, equal
// decode(all ids), and each piece ends on a character boundary. Not thread-safe.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);

  // Appends the text that became certain; characters whose bytes are incomplete are held back. No
  // heap allocation if `out` has room for 4 × limits::kPieceBytes more bytes.
  void push(int32_t id, std::string& out);
  // Appends what was held back and starts anew.
  void finish(std::string& out);

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TokenDecoder> decoder_;
};

// Loads the vocabulary at `path`: a tokenizer.json, a sentencepiece .model, a llama2.c
// tokenizer.bin, a GGUF, a vocab.txt or vocab.json, or a directory holding tokenizer.json,
// tokenizer.model, vocab.json with merges.txt, or vocab.txt (in this order), with
// tokenizer_config.json, special_tokens_map.json and added_tokens.json beside it taken into
// account, or else a single GGUF model. Throws Error: kMissing (no such file, or none of these in
// the directory), kMalformed (broken, hostile or over a limit of base/limits.h), kUnsupported
// (names the component and its place).
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

// The vocabulary inside a GGUF file (keys tokenizer.ggml.*). Errors as above. Copies what it
// needs: `file` need not outlive it.
std::shared_ptr<const Tokenizer> load_tokenizer(const io::GgufFile& file);

}  // namespace lumen::text
