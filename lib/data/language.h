// Text in its formats as data sets of tokens. For this room only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/data/data.h"
#include "lib/data/documents.h"
#include "lib/data/source.h"

namespace lumen::data {

// text, lines, jsonl, faq, bin; see DataOptions. Throws as open_data.
Data open_language(const DataOptions& options, const TextTools& tools);

// The same for bin (in token_files.cc).
Data open_token_files(const DataOptions& options, const TextTools& tools);

// The date that chat templates see: data must not depend on the day of the run.
inline constexpr text::CivilTime kTemplateDate = {.year = 2025, .month = 1, .day = 1};

// A line of a file, without its end.
struct TextLine {
  std::string_view text;
  int64_t number;      // from 1; of a row of several lines that of the first
  int64_t indent = 0;  // characters before it on its line
};

// Calls `visit` for every line of `text` that is not blank; a byte-order mark is left out. Throws
// Error(kMalformed) for a line over limits::kDataRowBytes.
void for_each_line(std::string_view text, const std::function<void(const TextLine&)>& visit);

// Refuses "line L, column C: …" (columns count characters) for byte `offset` of the line.
[[noreturn]] void fail_at(const TextLine& line, size_t offset, std::string_view what);

// Refuses a line that is not UTF-8, at the first byte that is wrong.
void check_utf8(const TextLine& line);

// The text of a file, of which the lines that are no UTF-8 are refused or left out; without a
// byte-order mark.
std::string checked_text(const Source& source, BadRows& bad, SourceFile& file);

// Encodes text with a tokenizer the way training needs it.
class TextEncoder {
 public:
  TextEncoder(const DataOptions& options, const TextTools& tools);

  // A whole document: BOS if the tokenizer adds one, `text`, end of text if it has one.
  Document text(std::string_view text);
  // One item between start and end tokens: BOS, or else the end of text, stands before it.
  Document item(std::string_view text);
  // A prompt with what is to be learned, and the end of text.
  Document completion(std::string_view prompt, std::string_view completion);
  // A conversation, the members of {"messages": …, "tools": …} being checked already.
  Document chat(const io::Json& conversation);
  // The tokens of a text, or of a piece of one.
  std::vector<int32_t> encode(std::string_view text, const text::EncodeOptions& options);

  // The characters of all texts so far that the vocabulary has no token for, as
  // text::dropped_characters.
  std::string dropped_characters() const;
  // Whether there were conversations, of which none ends with one of TextTools::answer_ends that is
  // learned, but for blanks. Those whose last turn is not learned count if what is learned before
  // it does not end so either.
  bool open_chats() const { return seen_chat_ && !seen_end_; }

  bool learns_prompts() const { return options_.learn_all; }
  const text::Tokenizer& tokenizer() const { return *tools_.tokenizer; }
  // The end of text, if there is one.
  std::optional<int32_t> eos() const;
  // For positions that hold nothing.
  int32_t padding() const;

 private:
  // Notes the characters of `text` for dropped_characters.
  void see(std::string_view text);
  struct Boundaries {
    std::vector<int32_t> ids;
    std::vector<size_t> at;  // of each offset, its place in ids
  };
  // The tokens of `text` with a token boundary at each of the ascending byte `offsets`.
  Boundaries encode_parts(std::string_view text, const std::vector<size_t>& offsets,
                          std::optional<bool> parse_special);
  void add_bos(Document& document) const;
  void add_eos(Document& document, bool learned) const;
  // `ends_learned`: whether the last turn is learned.
  Document framed_chat(Document document, bool ends_learned);

  const DataOptions& options_;
  TextTools tools_;
  bool seen_chat_ = false, seen_end_ = false;
  std::vector<bool> seen_ = std::vector<bool>(0x110000);  // code points of the texts so far
};

// Calls `visit` for every row of a jsonl file: its lines, or, if the file is one array, the
// elements of that, over several lines or several on one. Throws Error(kMalformed) as
// for_each_line, and for an array that does not end.
void for_each_json_row(std::string_view text, const std::function<void(const TextLine&)>& visit);

// What is wrong with `line`, which should be one object of a jsonl file, if it begins an array or
// an object of several lines: "found the beginning of …, expected …"; else "".
std::string why_no_row(std::string_view line);
// One object of a jsonl file. Throws Error(kMalformed) "line L, column C: …".
io::Json parse_json_row(const TextLine& line);
// The same as a document. Throws Error(kMalformed) "line L, column C: …".
Document encode_json_row(const TextLine& line, TextEncoder& encoder);

// One way to put a question, and its answer.
struct FaqEntry {
  std::string_view question, answer;
  bool held_out;   // for evaluation
  int64_t number;  // of the question's line
};

// Adds other spellings of the entry's question: in lower case without the final mark, as a sentence
// ("What is Lumen?"), and, if it has at least four words, three times with a random one left out or
// exchanged with the next.
void add_variants(const FaqEntry& entry, uint64_t seed, std::vector<std::string>& questions);

// The entries of a question file, whose text they refer to. A row that may be bad is a block: one
// with a line of another kind, without a question or without an answer ("line L, …").
std::vector<FaqEntry> parse_faq(std::string_view text, BadRows& bad, SourceFile& file);

// Throws Error(kMalformed) for a message of another role than system, user and assistant, for tools
// and for calls of them that the template leaves out of `full`, the rendered conversation, without
// a word.
void check_shown(const text::ChatTemplate& chat_template, const text::ChatInput& input,
                 const std::string& full);

// Whether a message may be learned: it has no "weight": 0 (OpenAI's mark of what is not), and is
// learned: it is of one of `roles`, too.
bool has_weight(const io::Json& message);
bool is_learned(const io::Json& message, const std::vector<std::string>& roles);

// Byte ranges of `full`, the rendered conversation, that the messages of `roles` said which are
// learned, in order; those of the assistant with what ends the turn where that can be told. Throws
// Error(kMalformed) if the template does not let them be found.
std::vector<text::ByteRange> said_by(const std::vector<std::string>& roles,
                                     const text::ChatTemplate& chat_template,
                                     const text::ChatInput& input, const std::string& full);
// The same of all messages without weight.
std::vector<text::ByteRange> said_without_weight(const text::ChatTemplate& chat_template,
                                                 const text::ChatInput& input,
                                                 const std::string& full);

}  // namespace lumen::data
