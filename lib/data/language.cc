#include "lib/data/language.h"

#include <algorithm>
#include <memory>
#include <span>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/shuffle.h"
#include "lib/data/windows.h"
#include "lib/io/sha256.h"

namespace lumen::data {
std::string checked_text(const Source& source, BadRows& bad, SourceFile& file) {
  std::string_view text = source.text();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (is_valid_utf8(text)) return std::string(text);
  std::string good;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end == text.npos ? end : end + 1);
    text.remove_prefix(line.size());
    ++number;
    bad.guard(file, [&] {
      check_utf8({line, number});
      good += line;
    });
  }
  return good;
}

namespace {

// Appends the tokens of `text`, tokenized in pieces that end at a line's end, so that a file may be
// longer than a prompt. Of long ones no second copy is made meanwhile, as that can be gigabytes.
void encode_long(std::string_view text, TextEncoder& encoder, std::vector<int32_t>& ids) {
  constexpr size_t kPiece = 64 << 20;
  for (bool first = true; !text.empty(); first = false) {
    size_t size = text.size();
    if (size > kPiece) {
      const size_t line_end = text.rfind('\n', kPiece);
      size = line_end == text.npos || line_end == 0 ? kPiece : line_end + 1;
      while (size < text.size() && (text[size] & 0xC0) == 0x80) ++size;
    }
    auto piece = encoder.encode(text.substr(0, size), {.add_special = false});
    if (first && size < text.size()) {  // about as many tokens a byte for what follows
      const size_t pieces = (text.size() + size - 1) / size;
      ids.reserve(ids.size() + piece.size() / 16 * 17 * pieces);
    }
    if (ids.empty() && size == text.size()) {
      ids = std::move(piece);
    } else {
      ids.insert(ids.end(), piece.begin(), piece.end());
    }
    text.remove_prefix(size);
  }
}

// The tokens of text files, with the end of text between them.
std::vector<int32_t> read_text(const std::vector<std::string>& paths, const DataOptions& options,
                               TextEncoder& encoder, BadRows& bad, DatasetInfo& info) {
  std::vector<int32_t> ids;
  for (const std::string& path : expand_paths(paths)) {
    SourceFile file;
    const Source source = read_source(path, limits::kDataUnpackedBytes, file);
    const std::string text =
        with_context(source.place(), [&] { return checked_text(source, bad, file); });
    const auto bos = encoder.tokenizer().special_ids().bos, eos = encoder.eos();
    if (!ids.empty() && eos && options.add_eos.value_or(true)) ids.push_back(*eos);
    if (bos && options.add_bos.value_or(false)) ids.push_back(*bos);
    with_context(source.place(), [&] { encode_long(text, encoder, ids); });
    file.samples = 1;
    info.files.push_back(std::move(file));
  }
  return ids;
}

std::shared_ptr<const Dataset> text_windows(std::vector<int32_t> ids, const DataOptions& options,
                                            bool training, double& counted) {
  auto tokens = std::make_shared<const std::vector<int32_t>>(std::move(ids));
  const WindowSettings settings = {options.seq, training && options.shuffle, options.max_samples};
  return make_windows<int32_t>({{{tokens->data(), tokens->size()}, tokens}}, settings, counted);
}

Data open_text(const DataOptions& options, TextEncoder& encoder) {
  Data data;
  DatasetInfo& info = data.info;
  BadRows bad(options.on_bad_row, info);
  std::vector<int32_t> train = read_text(options.paths, options, encoder, bad, info), eval;
  if (!options.eval_paths.empty()) {
    eval = read_text(options.eval_paths, options, encoder, bad, info);
  } else {
    const int64_t kept =
        eval_count(static_cast<int64_t>(train.size()), options.eval_fraction.value_or(0.1));
    eval.assign(train.end() - kept, train.end());
    train.resize(train.size() - static_cast<size_t>(kept));
  }
  io::Sha256 hash;
  hash.update(std::as_bytes(std::span(train)));
  hash.update(std::as_bytes(std::span(eval)));
  info.tokens_sha256 = hash.hex();
  if (train.size() < 2) {
    fail(ErrorKind::kMalformed, io::place_of(options.paths.front()), ": gives ", train.size(),
         train.size() == 1 ? " token" : " tokens", " for training, expected at least 2");
  }
  data.train = text_windows(std::move(train), options, true, info.train_tokens);
  if (eval.size() >= 2) {
    data.eval = text_windows(std::move(eval), options, false, info.eval_tokens);
  }
  info.description = str("text, ", info.train_tokens, " + ", info.eval_tokens,
                         " tokens in windows of ", options.seq);
  return data;
}

// Reads documents of files into a store, by the rules for rows that are bad or too long.
class DocumentReader {
 public:
  DocumentReader(const DataOptions& options, TextEncoder& encoder, DatasetInfo& info)
      : options_(options), encoder_(encoder), info_(info), bad_(options.on_bad_row, info) {}

  // The indices of the documents that `paths` added. `held_out`, unless null, receives those of
  // questions that are held out, which are left out otherwise.
  std::vector<int64_t> read(const std::vector<std::string>& paths, Split split,
                            std::vector<int64_t>* held_out = nullptr) {
    std::vector<int64_t> added;
    for (const std::string& path : expand_paths(paths)) {
      SourceFile file;
      const Source source = read_source(path, limits::kDataUnpackedBytes, file);
      with_context(source.place(), [&] {
        if (options_.format == Format::kText) {
          read_separated(source, added, file);
        } else if (options_.format == Format::kFaq) {
          auto* const asked = split == Split::kTrain ? &added : nullptr;
          read_faq(source, asked, split == Split::kTrain ? held_out : &added, file);
        } else {
          read_lines(source, added, file);
        }
      });
      info_.files.push_back(std::move(file));
    }
    return added;
  }

  const std::shared_ptr<Documents>& documents() const { return documents_; }

 private:
  void read_lines(const Source& source, std::vector<int64_t>& added, SourceFile& file) {
    const bool is_json = options_.format == Format::kJsonl;
    (is_json ? for_each_json_row : for_each_line)(source.text(), [&](const TextLine& line) {
      bad_.guard(file, [&] {
        if (!is_json) check_utf8(line);
        Document document = is_json ? encode_json_row(line, encoder_) : encoder_.item(line.text);
        take(std::move(document), line.number, added, file);
      });
    });
  }

  // Questions go to `asked`, held-out ones to `held_out`; null: they are left out.
  void read_faq(const Source& source, std::vector<int64_t>* asked, std::vector<int64_t>* held_out,
                SourceFile& file) {
    for (const FaqEntry& entry : parse_faq(source.text(), bad_, file)) {
      std::vector<int64_t>* const added = entry.held_out ? held_out : asked;
      if (added == nullptr) continue;
      std::vector<std::string> questions = {std::string(entry.question)};
      if (options_.augment && !entry.held_out) add_variants(entry, options_.seed, questions);
      for (const std::string& question : questions) {
        const io::Json messages = {{{"role", "user"}, {"content", question}},
                                   {{"role", "assistant"}, {"content", entry.answer}}};
        take(encoder_.chat({{"messages", messages}}), entry.number, *added, file);
      }
    }
  }

  void read_separated(const Source& source, std::vector<int64_t>& added, SourceFile& file) {
    std::string_view text = source.text();
    int64_t number = 1;
    while (!text.empty()) {
      const size_t end = text.find(options_.separator);
      std::string_view part = text.substr(0, end);
      const int64_t begin_line = number;
      number += std::count(part.begin(), part.end(), '\n');
      text.remove_prefix(end == text.npos ? text.size() : end + options_.separator.size());
      number += std::count(options_.separator.begin(), options_.separator.end(), '\n');
      const size_t first = part.find_first_not_of(" \t\r\n");
      if (first == part.npos) continue;
      part = part.substr(first, part.find_last_not_of(" \t\r\n") - first + 1);
      bad_.guard(file, [&] {
        check_utf8({part, begin_line});
        take(encoder_.text(part), begin_line, added, file);
      });
    }
  }

  void take(Document document, int64_t line, std::vector<int64_t>& added, SourceFile& file) {
    const auto targets = static_cast<int64_t>(document.ids.size()) - 1;
    if (targets < 1) {
      fail(ErrorKind::kMalformed, "line ", line, ", column 1: has no text to learn from");
    }
    if (targets > options_.seq && options_.on_too_long != OnTooLong::kSplit) {
      if (options_.on_too_long == OnTooLong::kError) {
        // Not a bad row that may be skipped: the recipe and the data do not fit.
        fail(ErrorKind::kMismatch, "line ", line, ": has ", targets + 1,
             " tokens, a row of max_length = ", options_.seq, " holds ", options_.seq + 1,
             "; set max_length = ", targets, ", or on_too_long to truncate, skip or split");
      }
      document.ids.resize(static_cast<size_t>(options_.seq) + 1);
      document.learned.resize(document.ids.size());
      const auto learns = std::count(document.learned.begin(), document.learned.end(), true);
      if (options_.on_too_long == OnTooLong::kSkip || learns == 0) {
        ++file.too_long;
        ++info_.too_long;
        return;
      }
      ++file.cut;
      ++info_.cut;
    }
    added.push_back(documents_->count());
    documents_->add(document);
    ++file.samples;
  }

  const DataOptions& options_;
  TextEncoder& encoder_;
  DatasetInfo& info_;
  BadRows bad_;
  std::shared_ptr<Documents> documents_ = std::make_shared<Documents>();
};

// Of the longest document: longer rows would hold nothing but padding there.
int64_t most_targets(const Documents& documents) {
  int64_t most = 1;
  for (int64_t i = 0; i < documents.count(); ++i) most = std::max(most, documents.size(i) - 1);
  return most;
}

Data open_documents(const DataOptions& options, TextEncoder& encoder) {
  Data data;
  DatasetInfo& info = data.info;
  DocumentReader reader(options, encoder, info);
  SplitIndices split;
  const bool held_out = options.format == Format::kFaq && options.eval_paths.empty();
  split.train = reader.read(options.paths, Split::kTrain, held_out ? &split.eval : nullptr);
  if (held_out || !options.eval_paths.empty()) {
    if (!held_out) split.eval = reader.read(options.eval_paths, Split::kEval);
    for (auto* part : {&split.train, &split.eval}) {
      const auto count = static_cast<int64_t>(part->size());
      std::vector<int64_t> kept = split_indices(count, 0, options.max_samples, options.seed).train;
      for (int64_t& index : kept) index = (*part)[static_cast<size_t>(index)];
      *part = std::move(kept);
    }
  } else {
    split = split_indices(static_cast<int64_t>(split.train.size()),
                          options.eval_fraction.value_or(0.1), options.max_samples, options.seed);
  }
  info.documents = reader.documents()->count();
  info.tokens_sha256 = reader.documents()->sha256();
  if (split.train.empty()) {
    std::string left_out;
    if (info.skipped > 0) left_out += str("; bad rows left out: ", info.skipped);
    if (info.too_long > 0) {
      left_out += str("; left out as longer than max_length = ", options.seq, ": ", info.too_long);
    }
    fail(ErrorKind::kMalformed, io::place_of(options.paths.front()),
         ": has no documents to train on", left_out);
  }
  RowSettings settings = {options.seq, options.pack, encoder.padding(), options.seed};
  if (!options.pack) settings.seq = std::min(options.seq, most_targets(*reader.documents()));
  data.train = make_rows(reader.documents(), split.train, settings, info.train_tokens);
  if (!split.eval.empty()) {
    data.eval = make_rows(reader.documents(), split.eval, settings, info.eval_tokens);
  }
  info.description =
      str(info.documents, " documents, ", info.train_tokens, " + ", info.eval_tokens,
          " tokens to learn in rows of ", settings.seq, options.pack ? ", packed" : "");
  return data;
}

}  // namespace

Data open_language(const DataOptions& options, const TextTools& tools) {
  if (options.format == Format::kBin) return open_token_files(options, tools);
  TextEncoder encoder(options, tools);
  const bool windows = options.format == Format::kText && options.separator.empty();
  Data data = windows ? open_text(options, encoder) : open_documents(options, encoder);
  data.info.vocab_size = encoder.tokenizer().vocab_size();
  data.info.dropped = encoder.dropped_characters();
  data.info.open_chats = encoder.open_chats();
  data.info.train_samples = data.train->samples();
  data.info.eval_samples = data.eval ? data.eval->samples() : 0;
  return data;
}

}  // namespace lumen::data
