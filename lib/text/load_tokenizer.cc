// Finding out what kind of vocabulary a path holds.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/text/gguf_files.h"
#include "lib/text/tokenizer.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/tokenizer_json.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::text {
namespace {

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

io::Json read_optional(const std::string& path) {
  return io::is_regular_file(path) ? io::read_json(path) : io::Json();
}

// In the order of TokenizerConfig.
constexpr const char* kConfigFiles[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};

// `read` gives what the file of a name says, null where there is none.
template <typename Read>
TokenizerConfig config_of(const Read& read) {
  return {read(kConfigFiles[0]), read(kConfigFiles[1]), read(kConfigFiles[2])};
}

TokenizerConfig read_config(const std::string& directory) {
  return config_of([&](const char* name) { return read_optional(str(directory, "/", name)); });
}

std::string_view text_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data), buffer.bytes};
}

std::shared_ptr<const Tokenizer> load_json(const std::string& path) {
  const TokenizerConfig config = read_config(directory_of(path));
  const io::Json json = io::read_json(path);
  return with_context(path, [&] { return parse_tokenizer_json(json, config); });
}

// Refuses a vocabulary of tiktoken, such as the tokenizer.model of Llama 3's original files: lines
// of a token in base64 and its rank.
void refuse_tiktoken(std::string_view bytes) {
  const std::string_view line =
      bytes.substr(0, std::min<size_t>(bytes.find('\n'), limits::kPieceBytes));
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0 || space % 4 != 0) return;
  const auto is_base64 = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  };
  int64_t rank = 0;
  if (!std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(space), is_base64) ||
      !parse_number(line.substr(space + 1), rank)) {
    return;
  }
  fail(ErrorKind::kUnsupported,
       "this is a vocabulary of tiktoken; take the model's tokenizer.json in its place");
}

enum class FileKind { kGguf, kJson, kSentencepiece, kLlama2c };

// By the first bytes: GGUF has a magic number, JSON is text, a sentencepiece model begins with the
// tag and length of its first piece, and what is left can only be llama2.c's.
FileKind kind_of(const std::string& path, std::string_view bytes) {
  if (bytes.starts_with("GGUF")) return FileKind::kGguf;
  if (bytes.size() > limits::kTokenizerBytes) {  // looked through below
    fail(ErrorKind::kMalformed, path, ": the file has ", bytes.size(),
         " bytes, a vocabulary at most ", limits::kTokenizerBytes,
         " (limit tokenizer-bytes): is it one?");
  }
  const size_t content = bytes.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (content != std::string_view::npos && bytes[content] == '{') return FileKind::kJson;
  const bool has_pieces = bytes.size() > 1 && bytes[0] == '\n' && bytes[1] != '\0';
  return has_pieces ? FileKind::kSentencepiece : FileKind::kLlama2c;
}

std::shared_ptr<const io::GgufFile> gguf_header(const std::string& path) {
  return io::read_gguf(path, {.allow_trailing = true, .header_only = true});
}

std::shared_ptr<const Tokenizer> load_file(const std::string& path) {
  const std::shared_ptr<const Buffer> buffer = io::map_file(path);
  const std::string_view bytes = text_of(*buffer);
  const FileKind kind = kind_of(path, bytes);
  if (kind == FileKind::kGguf) return load_tokenizer(*gguf_header(path));
  if (kind == FileKind::kJson) return load_json(path);
  if (kind == FileKind::kSentencepiece) {
    const std::string model = io::read_file(path, limits::kTokenizerBytes);
    return with_context(path, [&] { return parse_sentencepiece(model, nullptr); });
  }
  return with_context(path, [&] {
    const std::string hint = io::content_hint(std::as_bytes(std::span(bytes.substr(0, 512))));
    if (!hint.empty()) fail(ErrorKind::kMalformed, hint);
    refuse_tiktoken(bytes);
    return parse_llama2c(bytes);
  });
}

}  // namespace

DirectoryVocabulary read_directory_vocabulary(const std::string& directory) {
  const auto has = [&](const char* name) { return io::is_regular_file(directory + name); };
  DirectoryVocabulary vocabulary;
  vocabulary.config = read_config(directory);
  if (has("/tokenizer.json")) {
    vocabulary.path = directory + "/tokenizer.json";
    vocabulary.json = io::read_json(vocabulary.path);
  } else if (has("/tokenizer.model")) {
    vocabulary.path = directory + "/tokenizer.model";
    vocabulary.sentencepiece = io::read_file(vocabulary.path, limits::kTokenizerBytes);
  } else if ((has("/vocab.json") && has("/merges.txt")) || has("/vocab.txt")) {
    vocabulary.path = directory;
    vocabulary.json = with_context(
        directory, [&] { return legacy_tokenizer_json(directory, vocabulary.config); });
  } else {
    fail(ErrorKind::kMissing, directory,
         ": no tokenizer.json, tokenizer.model, vocab.json with merges.txt, or vocab.txt");
  }
  return vocabulary;
}

std::shared_ptr<const Tokenizer> parse_tokenizer(const DirectoryVocabulary& vocabulary) {
  return with_context(vocabulary.path, [&] {
    if (vocabulary.sentencepiece) refuse_tiktoken(*vocabulary.sentencepiece);
    return vocabulary.sentencepiece
               ? parse_sentencepiece(*vocabulary.sentencepiece, &vocabulary.config)
               : parse_tokenizer_json(vocabulary.json, vocabulary.config);
  });
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  if (io::is_directory(path)) {
    const std::string gguf = io::find_tokenizer(path).empty() ? io::only_gguf(path) : "";
    return gguf.empty() ? parse_tokenizer(read_directory_vocabulary(path)) : load_file(gguf);
  }
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "vocab.json" || name == "vocab.txt" || name == "merges.txt") {
    const std::string directory = directory_of(path);
    const TokenizerConfig config = read_config(directory);
    return with_context(directory, [&] {
      return parse_tokenizer_json(legacy_tokenizer_json(directory, config), config);
    });
  }
  return load_file(path);
}

std::shared_ptr<const Tokenizer> parse_files(const std::vector<TokenizerFile>& files) {
  const auto content = [&](std::string_view name) {
    const auto file = std::ranges::find(files, name, &TokenizerFile::name);
    return file == files.end() ? nullptr : &file->content;
  };
  const auto json = [&](const char* name) {
    if (!content(name)) return io::Json();
    std::string_view text = *content(name);
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return io::parse_json(text, name);
  };
  DirectoryVocabulary vocabulary;
  vocabulary.config = config_of(json);
  vocabulary.path = content("tokenizer.json") ? "tokenizer.json" : "tokenizer.model";
  if (content("tokenizer.json")) {
    vocabulary.json = json("tokenizer.json");
  } else if (content("tokenizer.model")) {
    vocabulary.sentencepiece = *content("tokenizer.model");
  } else {
    fail(ErrorKind::kMissing, "no tokenizer.json or tokenizer.model");
  }
  return parse_tokenizer(vocabulary);
}

std::vector<TokenizerFile> vocabulary_files(const std::string& path) {
  const auto buffer = io::map_file(path);
  const FileKind kind = kind_of(path, text_of(*buffer));
  if (kind == FileKind::kGguf) return tokenizer_files(*gguf_header(path));
  if (kind == FileKind::kLlama2c) {
    const auto file = with_context(path, [&] { return llama2c_as_gguf(text_of(*buffer)); });
    return file == nullptr ? std::vector<TokenizerFile>() : tokenizer_files(*file);
  }
  const std::string content = io::read_file(path, limits::kJsonBytes);
  if (kind == FileKind::kSentencepiece) return {{"tokenizer.model", content}};
  std::vector<TokenizerFile> files = {{"tokenizer.json", content}};
  for (const char* name : kConfigFiles) {
    const std::string beside = str(directory_of(path), "/", name);
    if (!io::is_regular_file(beside)) continue;
    files.push_back({name, io::read_file(beside, limits::kJsonBytes)});
  }
  return files;
}

}  // namespace lumen::text
