// Byte-pair encoding: characters or bytes of a word joined by a table of merges.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/merge_table.h"
#include "lib/text/model.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

// What a BPE model is made of. Symbols are token ids, and from `first_virtual` on symbols that are
// no tokens themselves: pieces that only occur on the way to longer ones.
struct BpeTables {
  const Vocabulary* vocabulary = nullptr;  // outlives the model
  MergeTable merges;

  int32_t first_virtual = 0;
  Vocabulary virtual_symbols;                    // spelling of symbol - first_virtual
  std::vector<std::vector<int32_t>> expansions;  // token ids of symbol - first_virtual

  std::string continuing_prefix;   // put before every character of a word but the first
  std::string end_of_word_suffix;  // put after the last character
  std::optional<int32_t> unk;
  bool fuse_unk = false;       // adjacent unknown characters become one token
  bool byte_fallback = false;  // unknown characters become their byte tokens "<0x0A>", if all exist
  bool ignore_merges = false;  // a word that is a token is that token

  // If set, the symbol of each byte of an unknown character; takes the place of unk and
  // byte_fallback, and text need not be UTF-8.
  std::optional<std::array<int32_t, 256>> byte_symbols;

  // Words are plain bytes; tokens are spelled in the byte-level alphabet.
  bool plain_bytes = false;
  // Words may be long: cut them where no merge can join, which changes nothing but the time.
  bool long_words = false;
};

// Whether every byte that occurs in UTF-8 has a token of the byte-level alphabet.
bool covers_bytes(const Vocabulary& vocabulary);

class Bpe : public Model {
 public:
  explicit Bpe(BpeTables tables);
  ~Bpe() override;
  std::unique_ptr<State> make_state() const override;
  void tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const override;

 private:
  class Cuts;
  struct WorkSpace;
  void tokenize_chunk(std::string_view chunk, WorkSpace& work, std::vector<int32_t>& ids) const;
  void to_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const;
  void append_characters(std::string_view chunk, std::vector<int32_t>& symbols) const;
  // The id of a word that needs no merges, or -1.
  int32_t whole_word(std::string_view word) const;
  int32_t find_symbol(std::string_view text) const;

  BpeTables tables_;
  std::array<int32_t, 256> plain_symbols_{};    // with plain_bytes
  std::array<int32_t, 256> fallback_tokens_{};  // with byte_fallback; -1 where there is none
  Vocabulary whole_words_;                      // with plain_bytes and ignore_merges
  std::unique_ptr<Cuts> cuts_;                  // with long_words
};

}  // namespace lumen::text
