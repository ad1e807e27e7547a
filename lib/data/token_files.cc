// Files of tokens: nanoGPT's (uint16, nothing else) and llm.c's (a header of 256 int32, then uint16
// for version 1 or uint32 for version 7), https://github.com/karpathy/llm.c
// dev/data/data_common.py.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/language.h"
#include "lib/data/shuffle.h"
#include "lib/data/windows.h"

namespace lumen::data {
namespace {

constexpr uint32_t kMagic16 = 20240520, kMagic32 = 20240801;
constexpr size_t kHeaderBytes = 256 * 4;

struct TokenFile {
  std::shared_ptr<const Source> source;
  size_t begin = 0;  // of the tokens, in bytes
  bool wide = false;
  SourceFile info;
};

// Where the tokens of a file begin and how wide they are.
void parse_header(std::span<const std::byte> bytes, TokenFile& file) {
  constexpr std::string_view kNpy = "\x93NUMPY";
  if (bytes.size() >= kNpy.size() && std::memcmp(bytes.data(), kNpy.data(), kNpy.size()) == 0) {
    fail(ErrorKind::kUnsupported,
         "is a NumPy array file; expected nothing but tokens, as array.astype('uint16').tofile() "
         "writes them");
  }
  uint32_t header[3] = {};
  std::memcpy(header, bytes.data(), std::min(bytes.size(), sizeof header));
  const bool has_header =
      bytes.size() >= kHeaderBytes && (header[0] == kMagic16 || header[0] == kMagic32);
  if (has_header) {
    file.wide = header[0] == kMagic32;
    file.begin = kHeaderBytes;
    const uint32_t version = file.wide ? 7 : 1;
    if (header[1] != version) {
      fail(ErrorKind::kUnsupported, "has a header of version ", header[1], ", only ", version,
           " is read");
    }
  }
  const size_t width = file.wide ? 4 : 2, data = bytes.size() - file.begin;
  if (has_header && data != size_t{header[2]} * width) {
    fail(ErrorKind::kMalformed, "the header announces ", header[2], " tokens, there are ", data,
         " bytes for them, expected ", size_t{header[2]} * width, " (truncated file?)");
  }
  if (data % width != 0) {
    fail(ErrorKind::kMalformed, "has ", bytes.size(),
         " bytes, expected tokens of 2 bytes each (truncated file?)");
  }
  if (data < 2 * width) fail(ErrorKind::kMalformed, "has fewer than 2 tokens");
}

std::vector<TokenFile> read_files(const std::vector<std::string>& paths) {
  std::vector<TokenFile> files;
  for (const std::string& path : expand_paths(paths)) {
    TokenFile file;
    file.source =
        std::make_shared<const Source>(read_source(path, limits::kDataFileBytes, file.info));
    with_context(file.source->place(), [&] { parse_header(file.source->bytes(), file); });
    file.info.samples = 1;
    files.push_back(std::move(file));
  }
  return files;
}

template <typename Token>
TokenRun<Token> run_of(const TokenFile& file, int64_t vocabulary, int64_t& largest) {
  const auto bytes = file.source->bytes().subspan(file.begin);
  // The offset is even, and a mapped file begins on a page.
  const auto* tokens = reinterpret_cast<const Token*>(bytes.data());
  const size_t count = bytes.size() / sizeof(Token);
  const auto most = std::max_element(tokens, tokens + count);
  const int64_t bound = vocabulary > 0 ? vocabulary : static_cast<int64_t>(limits::kVocab);
  if (int64_t{*most} >= bound) {
    const auto* bad =
        std::find_if(tokens, tokens + count, [&](Token token) { return int64_t{token} >= bound; });
    fail(ErrorKind::kMalformed, file.source->place(), ": token ", bad - tokens + 1, " (byte ",
         file.begin + static_cast<size_t>(bad - tokens) * sizeof(Token), ") is ", *bad,
         ", the vocabulary has ", bound, " tokens");
  }
  largest = std::max(largest, int64_t{*most});
  return {{tokens, count}, file.source};
}

// Both splits over tokens of one width.
template <typename Token>
void make_splits(const std::vector<TokenFile>& train, const std::vector<TokenFile>& eval,
                 const DataOptions& options, int64_t vocabulary, Data& data) {
  std::vector<TokenRun<Token>> train_runs, eval_runs;
  int64_t largest = 0;
  for (const TokenFile& file : train) {
    TokenRun<Token> run = run_of<Token>(file, vocabulary, largest);
    if (options.eval_paths.empty()) {
      const auto size = static_cast<int64_t>(run.tokens.size());
      const auto kept = static_cast<size_t>(eval_count(size, options.eval_fraction.value_or(0.1)));
      if (kept >= 2) eval_runs.push_back({run.tokens.last(kept), run.owner});
      run.tokens = run.tokens.first(run.tokens.size() - kept);
    }
    if (run.tokens.size() >= 2) train_runs.push_back(std::move(run));
  }
  for (const TokenFile& file : eval) {
    eval_runs.push_back(run_of<Token>(file, vocabulary, largest));
  }
  if (train_runs.empty()) {
    fail(ErrorKind::kMalformed, io::place_of(options.paths.front()), ": has no tokens to train on");
  }
  DatasetInfo& info = data.info;
  info.vocab_size = vocabulary > 0 ? vocabulary : largest + 1;
  data.train = make_windows(std::move(train_runs),
                            {options.seq, options.shuffle, options.max_samples}, info.train_tokens);
  if (!eval_runs.empty()) {
    data.eval = make_windows(std::move(eval_runs), {options.seq, false, options.max_samples},
                             info.eval_tokens);
  }
}

}  // namespace

Data open_token_files(const DataOptions& options, const TextTools& tools) {
  const auto train = read_files(options.paths), eval = read_files(options.eval_paths);
  const int64_t vocabulary =
      tools.tokenizer != nullptr ? tools.tokenizer->vocab_size() : tools.vocab_size;
  for (const auto* part : {&train, &eval}) {
    for (const TokenFile& file : *part) {
      if (file.wide != train.front().wide) {
        fail(ErrorKind::kMismatch, file.source->place(),
             ": has tokens of another width than the first file");
      }
    }
  }
  Data data;
  if (train.front().wide) {
    make_splits<uint32_t>(train, eval, options, vocabulary, data);
  } else {
    make_splits<uint16_t>(train, eval, options, vocabulary, data);
  }
  DatasetInfo& info = data.info;
  for (const auto* part : {&train, &eval}) {
    for (const TokenFile& file : *part) info.files.push_back(file.info);
  }
  info.train_samples = data.train->samples();
  info.eval_samples = data.eval ? data.eval->samples() : 0;
  info.description = str("token files, ", info.train_tokens, " + ", info.eval_tokens,
                         " tokens in windows of ", options.seq);
  return data;
}

}  // namespace lumen::data
