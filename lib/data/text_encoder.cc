#include <algorithm>
#include <optional>
#include <span>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/data/language.h"
#include "lib/text/growing_text.h"

namespace lumen::data {
namespace {

bool begins_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& prefix) {
  return prefix.size() <= ids.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
}

// What may stand before a part of a text, so that the tokenizer does not take the part for the
// beginning of a text, before which sentencepiece puts a space: the first that gives the text back.
constexpr const char* kBefore[] = {"", "\n", "a", "."};

// The tokens of `part` behind `before`, unless one reaches over the boundary.
std::optional<std::vector<int32_t>> continued(const text::Tokenizer& tokenizer,
                                              const std::string& before, std::string_view part,
                                              const text::EncodeOptions& how) {
  auto ids = tokenizer.encode(before + std::string(part), how);
  if (before.empty()) return ids;
  const auto first = tokenizer.encode(before, how);
  if (!begins_with(ids, first)) return std::nullopt;
  ids.erase(ids.begin(), ids.begin() + static_cast<int64_t>(first.size()));
  return ids;
}

// Marks ids [begin, end) as learned, or not: without the white space that a template puts after the
// control token that ends the turn, for which a model is never asked, but with that token if it
// stands right behind, or the model would not learn to stop.
void mark_answer(const text::Tokenizer& tokenizer, size_t begin, size_t end, bool learned,
                 Document& document) {
  for (size_t i = end; i > begin; --i) {
    if (!tokenizer.is_special(document.ids[i - 1])) continue;
    const auto rest = std::span(document.ids).subspan(i, end - i);
    if (tokenizer.decode(rest).find_first_not_of(" \t\r\n") == std::string::npos) end = i;
    break;
  }
  const auto ends_turn = [&](size_t i) {
    return tokenizer.is_special(document.ids[i]) && document.ids[i] != tokenizer.special_ids().bos;
  };
  if (end > begin && end < document.ids.size() && !ends_turn(end - 1) && ends_turn(end)) ++end;
  for (size_t i = begin; i < end; ++i) document.learned[i] = learned;
}

}  // namespace

TextEncoder::TextEncoder(const DataOptions& options, const TextTools& tools)
    : options_(options), tools_(tools) {
  if (tools_.tokenizer == nullptr) {
    fail(ErrorKind::kUsage, "data of format ", kFormatNames[static_cast<size_t>(options.format)],
         " need a tokenizer");
  }
  const bool frames = options.add_bos.value_or(true) || options.add_eos.value_or(true);
  if (options.format == Format::kLines && !eos() && frames) {
    fail(ErrorKind::kUsage, "data of format lines need a tokenizer with an end token; ",
         tokenizer().kind(), " names none as eos_token");
  }
}

std::optional<int32_t> TextEncoder::eos() const {
  const auto named = tokenizer().special_ids().eos;
  return named ? named : tools_.end_token;
}

int32_t TextEncoder::padding() const {
  return tokenizer().special_ids().pad.value_or(eos().value_or(0));
}

void TextEncoder::add_bos(Document& document) const {
  const auto bos = tokenizer().special_ids().bos;
  if (!options_.add_bos.value_or(tokenizer().adds_bos()) || !bos) return;
  if (!document.ids.empty() && document.ids.front() == *bos) return;
  document.ids.insert(document.ids.begin(), *bos);
  document.learned.insert(document.learned.begin(), false);
}

void TextEncoder::add_eos(Document& document, bool learned) const {
  if (!eos() || !options_.add_eos.value_or(true)) return;
  document.ids.push_back(*eos());
  document.learned.push_back(learned);
}

// A template ends its turns itself.
Document TextEncoder::framed_chat(Document document, bool ends_learned) {
  add_bos(document);
  const bool ended = !document.ids.empty() && document.ids.back() == eos();
  if (options_.add_eos.value_or(false) && !ended) add_eos(document, ends_learned);
  if (seen_end_) return document;
  const auto is_end = [&](int32_t id) {
    return std::find(tools_.answer_ends.begin(), tools_.answer_ends.end(), id) !=
           tools_.answer_ends.end();
  };
  const auto is_blank = [&](int32_t id) {
    return tokenizer().decode(std::span(&id, 1)).find_first_not_of(" \t\r\n") == std::string::npos;
  };
  const auto is_behind = [&](int32_t id, bool learned) {
    return ends_learned ? !is_end(id) && is_blank(id) : !learned;
  };
  size_t last = document.ids.size();
  while (last > 0 && is_behind(document.ids[last - 1], document.learned[last - 1])) --last;
  const bool closed = last > 0 && document.learned[last - 1] && is_end(document.ids[last - 1]);
  seen_end_ = closed && ends_learned;
  // A template may end an answer only where another turn follows, so that it is no proof.
  seen_chat_ = seen_chat_ || ends_learned || !closed;
  return document;
}

std::vector<int32_t> TextEncoder::encode(std::string_view text,
                                         const text::EncodeOptions& options) {
  see(text);
  return tokenizer().encode(text, options);
}

void TextEncoder::see(std::string_view text) {
  for (size_t at = 0; at < text.size();) seen_[next_code_point(text, at)] = true;
}

std::string TextEncoder::dropped_characters() const {
  std::vector<bool> seen = seen_;
  // Whether a control token was spelled there is not known: its characters do not count.
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) {
    if (!tokenizer().is_special(id)) continue;
    const std::string_view spelled = tokenizer().token_text(id);
    for (size_t at = 0; at < spelled.size();) seen[next_code_point(spelled, at)] = false;
  }
  std::string characters;
  for (uint32_t code_point = 0; code_point < seen.size(); ++code_point) {
    if (seen[code_point]) append_utf8(characters, code_point);
  }
  return text::dropped_characters(tokenizer(), characters);
}

Document TextEncoder::text(std::string_view text) {
  Document document;
  document.ids = encode(text, {.add_special = false});
  document.learned.assign(document.ids.size(), true);
  add_bos(document);
  add_eos(document, true);
  return document;
}

Document TextEncoder::item(std::string_view text) {
  Document document;
  if (options_.add_bos.value_or(true)) {
    document.ids = {tokenizer().special_ids().bos.value_or(*eos())};
  }
  const auto ids = encode(text, {.add_special = false, .parse_special = false});
  document.ids.insert(document.ids.end(), ids.begin(), ids.end());
  document.learned.assign(document.ids.size(), true);
  add_eos(document, true);
  return document;
}

TextEncoder::Boundaries TextEncoder::encode_parts(std::string_view text,
                                                  const std::vector<size_t>& offsets,
                                                  std::optional<bool> parse_special) {
  const text::EncodeOptions how = {.add_special = false, .parse_special = parse_special};
  see(text);
  text::GrowingText whole(tokenizer(), parse_special);
  Boundaries joint;
  joint.ids = whole.encode(text);
  for (const size_t offset : offsets) {
    const auto count = whole.beginning(offset);
    if (!count) break;
    joint.at.push_back(*count);
  }
  if (joint.at.size() == offsets.size()) return joint;
  // A token would reach over a boundary. What a model reads at one is the prompt's tokens by
  // themselves, so the parts are encoded by themselves, if that leaves the text as it is.
  const std::string wanted = tokenizer().decode(joint.ids);
  for (const char* before : kBefore) {
    Boundaries parts;
    size_t begin = 0;
    bool found = true;
    for (size_t i = 0; found && i <= offsets.size(); ++i) {
      const size_t end = i < offsets.size() ? offsets[i] : text.size();
      const auto part = text.substr(begin, end - begin);
      const auto ids = continued(tokenizer(), i > 0 ? before : "", part, how);
      found = ids.has_value();
      if (found) parts.ids.insert(parts.ids.end(), ids->begin(), ids->end());
      if (i < offsets.size()) parts.at.push_back(parts.ids.size());
      begin = end;
    }
    if (found && tokenizer().decode(parts.ids) == wanted) return parts;
  }
  fail(ErrorKind::kMalformed,
       "a token reaches over the boundary between what is learned and what is not, and encoding "
       "the parts by themselves changes the text: begin the answer with other text, or learn all "
       "roles");
}

Document TextEncoder::completion(std::string_view prompt, std::string_view completion) {
  const std::string whole = str(prompt, completion);
  const Boundaries encoded = encode_parts(whole, {prompt.size()}, std::nullopt);
  Document document;
  document.ids = encoded.ids;
  document.learned.assign(document.ids.size(), false);
  const size_t begin = options_.learn_all ? 0 : encoded.at[0];
  std::fill(document.learned.begin() + static_cast<int64_t>(begin), document.learned.end(), true);
  add_bos(document);
  add_eos(document, true);
  return document;
}

Document TextEncoder::chat(const io::Json& conversation) {
  if (tools_.chat_template == nullptr) {
    fail(ErrorKind::kUsage,
         "rows with \"messages\" need a chat template, and the tokenizer has "
         "none: name one");
  }
  text::ChatInput input;
  input.messages = *io::find(conversation, "messages");
  if (const io::Json* tools = io::find_value(conversation, "tools")) input.tools = *tools;
  input.add_generation_prompt = false;
  const text::SpecialIds& special = tokenizer().special_ids();
  if (special.bos) input.bos_token = std::string(tokenizer().token_text(*special.bos));
  if (special.eos) input.eos_token = std::string(tokenizer().token_text(*special.eos));
  const std::string full = text::render_chat(*tools_.chat_template, input, {.now = kTemplateDate});
  check_shown(*tools_.chat_template, input, full);
  const bool all = options_.learn_all;
  const auto ranges = all ? said_without_weight(*tools_.chat_template, input, full)
                          : said_by(options_.learn_roles, *tools_.chat_template, input, full);
  std::vector<size_t> offsets;
  for (const text::ByteRange& range : ranges) {
    offsets.push_back(range.begin);
    offsets.push_back(range.end);
  }
  const Boundaries encoded = encode_parts(full, offsets, true);
  Document document;
  document.ids = encoded.ids;
  document.learned.assign(document.ids.size(), all);
  for (size_t i = 0; i < encoded.at.size(); i += 2) {
    mark_answer(tokenizer(), encoded.at[i], encoded.at[i + 1], !all, document);
  }
  const io::Json& last = input.messages.back();
  return framed_chat(std::move(document),
                     all ? has_weight(last) : is_learned(last, options_.learn_roles));
}

}  // namespace lumen::data
