#include "lib/runtime/training/training_data.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/find_dataset.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/text/gguf_files.h"
#include "lib/text/train/train_tokenizer.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::runtime {
namespace {

// What chats are rendered with if nothing else is given: ChatML.
constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

// The value of an enumeration by its name, which recipe reading has checked.
template <typename Enum, size_t n>
Enum named(const std::array<std::string_view, n>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  LUMEN_CHECK(found != names.end());
  return static_cast<Enum>(found - names.begin());
}

// The format of the sources so far, and of `key` too; a data set may have that of its substitute.
void take_format(const Recipe& recipe, const std::string& key, data::Format format,
                 std::optional<data::Format>& common) {
  const auto name = [](data::Format f) { return data::kFormatNames[static_cast<size_t>(f)]; };
  if (common && *common != format) {
    fail_at_key(recipe, key,
                str("all data of a run have one format; this is ", name(format),
                    ", that before is ", name(*common)));
  }
  common = format;
}

// Sources of one split, of `table`: files by path, or a known data set.
void add_sources(const Recipe& recipe, const std::vector<DataSource>& sources,
                 const std::string& table, std::optional<data::Format>& format,
                 std::vector<std::string>& paths, TrainingData& result) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const DataSource& source = sources[i];
    const std::string here = str(table, "[", i, "]");
    if (source.dataset) {
      const data::FoundDataset found = data::find_dataset(*source.dataset);
      if (!found.notice.empty()) result.notices.push_back(found.notice);
      take_format(recipe, here + ".dataset", found.format, format);
      result.options.separator = found.separator;
      paths.insert(paths.end(), found.paths.begin(), found.paths.end());
      continue;
    }
    take_format(recipe, here + ".format", named<data::Format>(data::kFormatNames, *source.format),
                format);
    for (const std::string& path : source.path) {
      paths.push_back(path.starts_with("builtin:") ? path
                                                   : find_file(recipe, here + ".path", path));
    }
  }
}

// What counts: everything, answers, or what all roles say that the mask does not name. Questions
// and answers of "faq" have no mask.
void set_mask(const std::vector<std::string>& mask, data::DataOptions& options) {
  const auto masks = [&](std::string_view what) {
    return std::find(mask.begin(), mask.end(), what) != mask.end();
  };
  if (masks("none")) {
    options.learn_roles = {"system", "user", "assistant", "tool"};
    options.learn_all = options.format != data::Format::kFaq;
  } else if (!mask.empty() && !masks("prompt")) {
    options.learn_roles.clear();
    for (const char* role : {"system", "user", "assistant", "tool"}) {
      if (!masks(role)) options.learn_roles.emplace_back(role);
    }
  }
}

void set_options(const Recipe& recipe, data::DataOptions& options) {
  const DataRecipe& d = recipe.data;
  options.eval_fraction = d.eval_fraction;
  options.max_samples = d.max_samples;
  options.batch = *recipe.train.micro_batch;
  options.batches_per_step = recipe.train.batch_size / options.batch;
  options.shuffle = d.shuffle;
  options.seed = static_cast<uint64_t>(recipe.seed);
  options.last_batch = named<data::LastBatch>(data::kLastBatchNames, d.last_batch);
  options.prefetch = d.prefetch;
  options.seq = d.max_length.value_or(options.seq);
  options.pack = d.pack;
  // A substitute has its own, where the recipe divides what it stands for.
  if (options.separator.empty() || d.separator.empty()) options.separator = d.separator;
  options.add_bos = recipe.tokenizer.add_bos;
  options.add_eos = recipe.tokenizer.add_eos;
  options.on_too_long = named<data::OnTooLong>(data::kOnTooLongNames, d.on_too_long);
  set_mask(d.mask, options);
  options.on_bad_row = named<data::OnBadRow>(data::kOnBadRowNames, d.on_bad_row);
  options.image_size = d.image_size;
  options.channels = d.channels;
  options.augment = d.augment;
  options.crop_padding = d.crop_padding;
  options.flip = d.flip;
  options.digits_train = d.digits_train;
  options.digits_eval = d.digits_eval;
  options.mean = d.mean;
  options.std = d.std;
  options.header = d.header;
  options.label = d.label;
  options.label_kind = named<data::LabelKind>(data::kLabelKindNames, d.label_kind);
  options.integers_are_classes = recipe.task != "regress";
  options.text_columns = named<data::TextColumns>(data::kTextColumnsNames, d.text_columns);
  options.drop_columns = d.drop_columns;
  options.standardize = d.standardize;
}

// One long text is read in windows of it: it has no documents to pack, nor any that are too long.
void check_long_text(const Recipe& recipe, const data::DataOptions& options) {
  if (options.format != data::Format::kText || !options.separator.empty()) return;
  for (const auto& [key, given] :
       {std::pair("data.pack", options.pack),
        std::pair("data.on_too_long", options.on_too_long != data::OnTooLong::kError)}) {
    if (!given) continue;
    fail_at_key(recipe, key,
                "has no effect on one long text; give data.separator, which stands between its "
                "documents, or leave the key out");
  }
}

bool is_text(data::Format format) {
  return format == data::Format::kText || format == data::Format::kLines ||
         format == data::Format::kJsonl || format == data::Format::kFaq;
}

text::TokenizerTraining tokenizer_training(const Recipe& recipe, bool chat) {
  const TokenizerRecipe& t = recipe.tokenizer;
  text::TokenizerTraining training;
  const std::string& type = *t.type;
  training.kind = type == "char"       ? text::TokenizerKind::kCharacters
                  : type == "byte_bpe" ? text::TokenizerKind::kByteLevelBpe
                  : type == "unigram"  ? text::TokenizerKind::kSentencePieceUnigram
                                       : text::TokenizerKind::kSentencePieceBpe;
  training.vocab_size = t.vocab_size.value_or(0);
  training.special_tokens = t.special_tokens;
  training.eos = chat ? "<|im_end|>" : "<|endoftext|>";
  // The recipe may name them too.
  const auto add_first = [&all = training.special_tokens](const std::string& token) {
    if (std::find(all.begin(), all.end(), token) == all.end()) all.insert(all.begin(), token);
  };
  if (chat) add_first("<|im_start|>");
  add_first(training.eos);
  if (t.add_bos.value_or(false)) {
    training.bos = "<s>";
    const bool has_one = training.kind == text::TokenizerKind::kSentencePieceUnigram ||
                         training.kind == text::TokenizerKind::kSentencePieceBpe;
    if (!has_one) add_first(training.bos);
  }
  training.seed = static_cast<uint64_t>(recipe.seed);
  return training;
}

void train_own_tokenizer(const Recipe& recipe, const std::string& chat_template,
                         TrainingData& result) {
  std::vector<std::string> paths;
  for (const std::string& file : recipe.tokenizer.files) {
    paths.push_back(find_file(recipe, "tokenizer.files", file));
  }
  data::DataOptions options = result.options;
  if (!paths.empty()) {
    options.format = data::Format::kText;
    options.paths = paths;
  }
  const std::vector<std::string> texts = data::read_texts(options);
  if (std::all_of(texts.begin(), texts.end(), [](const auto& text) { return text.empty(); })) {
    fail(ErrorKind::kMalformed, io::place_of(options.paths.front()),
         options.paths.size() > 1 ? " and the other files have" : ": has",
         " no text to train a tokenizer on");
  }
  text::TokenizerTraining training = tokenizer_training(recipe, !chat_template.empty());
  training.chat_template = chat_template;
  try {
    result.tokenizer_files = text::make_tokenizer({texts.begin(), texts.end()}, training);
  } catch (const text::TokenizerOptionError& error) {
    fail_at_key(recipe, "tokenizer." + error.option(), error.what());
  }
  result.tokenizer = text::parse_files(result.tokenizer_files);
}

// The files of the vocabulary in `directory`.
std::vector<text::TokenizerFile> read_tokenizer_files(const std::string& directory) {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  names.emplace_back("tokenizer_config.json");
  std::vector<text::TokenizerFile> files;
  for (const std::string& name : names) {
    const std::string path = str(directory, "/", name);
    if (io::is_regular_file(path)) {
      files.push_back({name, io::read_file(path, limits::kJsonBytes)});
    }
  }
  return files;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// What the config of a base says ends a text, for a tokenizer of the base that names no eos_token.
std::optional<int32_t> end_token_of(const Recipe& recipe, const io::ModelFiles* base,
                                    const text::Tokenizer& tokenizer) {
  if (recipe.tokenizer.type || recipe.tokenizer.path || base == nullptr) return std::nullopt;
  if (base->end_tokens.empty()) return std::nullopt;
  const int32_t id = base->end_tokens.front().id;
  return id < tokenizer.vocab_size() ? std::optional(id) : std::nullopt;
}

// Whether a model's directory has its vocabulary in files of this name.
bool is_vocabulary_name(const std::string& name) {
  return name == "merges.txt" ||
         std::ranges::find(io::kVocabularyFiles, name) != std::end(io::kVocabularyFiles);
}

// Keeps `files` for the result to have them. If there are none, a whole model is told that
// lumen-run needs the vocabulary `place` beside it.
void keep_tokenizer(std::vector<text::TokenizerFile> files, const Recipe& recipe,
                    const std::string& place, TrainingData& result) {
  if (files.empty() && !makes_adapter(recipe)) {
    result.notices.push_back(
        str("the vocabulary (", result.tokenizer->kind(),
            ") has no form as tokenizer.json; lumen-run will need --tokenizer ", place));
  }
  result.tokenizer_files = std::move(files);
}

// The tokenizer at `path`, and its files for the result.
void take_tokenizer(const std::string& path, const Recipe& recipe, TrainingData& result) {
  result.tokenizer = text::load_tokenizer(path);
  std::string file = path;
  if (io::is_directory(path)) {
    if (!io::find_tokenizer(path).empty()) {
      result.tokenizer_files = read_tokenizer_files(path);
      return;
    }
    file = io::only_gguf(path);
  } else if (is_vocabulary_name(path.substr(path.rfind('/') + 1))) {
    result.tokenizer_files = read_tokenizer_files(parent_of(path));
    return;
  }
  keep_tokenizer(text::vocabulary_files(file), recipe, io::place_of(path), result);
  if (result.tokenizer_files.empty()) return;
  result.tokenizer =  // the result's
      with_context(io::place_of(path), [&] { return text::parse_files(result.tokenizer_files); });
}

void find_tokenizer(const Recipe& recipe, const io::ModelFiles* base, TrainingData& result) {
  const TokenizerRecipe& t = recipe.tokenizer;
  const bool chat =
      result.options.format == data::Format::kJsonl || result.options.format == data::Format::kFaq;
  std::string source, place = "chat template";
  if (t.chat_template) {
    const std::string file = find_file(recipe, "tokenizer.chat_template", *t.chat_template);
    source = io::read_file(file, limits::kTemplateBytes);
    place = io::place_of(file);
    if (source.empty()) fail(ErrorKind::kMalformed, place, ": the chat template is empty");
  } else if (base != nullptr && base->chat_templates.contains("default")) {
    source = base->chat_templates.at("default");
  } else if (chat) {
    source = kChatMl;
  }
  if (t.type) {
    train_own_tokenizer(recipe, source, result);
    const int64_t wanted = t.vocab_size.value_or(0), made = result.tokenizer->vocab_size();
    if (made < wanted && recipe.given.count("tokenizer.vocab_size") > 0) {
      result.notices.push_back(
          str("tokenizer.vocab_size is ", wanted, ", but the texts give only ", made, " tokens"));
    }
  } else if (t.path) {
    take_tokenizer(find_file(recipe, "tokenizer.path", *t.path), recipe, result);
  } else if (base != nullptr && !base->tokenizer_file.empty()) {
    result.tokenizer = text::load_tokenizer(base->tokenizer_file);
    result.tokenizer_files = read_tokenizer_files(parent_of(base->tokenizer_file));
  } else if (base != nullptr && base->gguf != nullptr) {
    result.tokenizer = text::load_tokenizer(*base->gguf);
    keep_tokenizer(text::tokenizer_files(*base->gguf), recipe, io::place_of(base->path), result);
  } else if (base != nullptr) {
    fail(ErrorKind::kMissing, io::place_of(base->path),
         ": has no tokenizer of its own; name one in tokenizer.path");
  } else {
    fail(ErrorKind::kUsage, "text needs a tokenizer: give tokenizer.type (char, bpe, unigram, ",
         "byte_bpe) to train one, or tokenizer.path");
  }
  const text::SpecialIds& special = result.tokenizer->special_ids();
  const bool ends = special.eos || end_token_of(recipe, base, *result.tokenizer);
  const bool starts = special.bos || (result.options.format == data::Format::kLines && ends);
  if (t.add_bos.value_or(false) && !starts) {
    fail_at_key(recipe, "tokenizer.add_bos",
                str("the tokenizer (", result.tokenizer->kind(), ") names no bos_token"));
  }
  if (t.add_eos.value_or(false) && !ends) {
    fail_at_key(recipe, "tokenizer.add_eos",
                str("the tokenizer (", result.tokenizer->kind(), ") names no eos_token"));
  }
  if (!source.empty()) result.chat_template = text::ChatTemplate::parse(source, place);
}

}  // namespace

DataShape TrainingData::shape() const {
  DataShape shape;
  shape.features = data.info.feature_shape;
  shape.classes = static_cast<int64_t>(data.info.classes.size());
  shape.vocab = tokenizer ? tokenizer->vocab_size() : data.info.vocab_size;
  return shape;
}

TrainingData open_training_data(const Recipe& recipe, const io::ModelFiles* base) {
  TrainingData result;
  std::optional<data::Format> format;
  add_sources(recipe, recipe.data.train, "data.train", format, result.options.paths, result);
  add_sources(recipe, recipe.data.eval, "data.eval", format, result.options.eval_paths, result);
  result.options.format = format.value();
  set_options(recipe, result.options);
  check_long_text(recipe, result.options);
  data::TextTools tools;
  // Token ids need no tokenizer, but their model does, to be talked to.
  const bool base_has_one =
      base != nullptr &&
      (!base->tokenizer_file.empty() ||
       (base->gguf != nullptr && base->gguf->metadata.find("tokenizer.ggml.tokens")));
  const bool has_one = recipe.tokenizer.path || base_has_one;
  const bool ids = result.options.format == data::Format::kBin;
  if (is_text(result.options.format) || (ids && has_one)) {
    find_tokenizer(recipe, base, result);
    const PromptFormat format(result.tokenizer, result.chat_template,
                              base != nullptr ? base->end_tokens : std::vector<io::EndToken>());
    tools = {result.tokenizer.get(), result.chat_template ? &*result.chat_template : nullptr,
             end_token_of(recipe, base, *result.tokenizer), format.end_token_ids()};
  } else if (base != nullptr) {
    tools.vocab_size = io::get_int(base->config, "vocab_size", 1, limits::kVocab);
  }
  try {
    result.data = data::open_data(result.options, tools);
  } catch (const data::DataOptionError& error) {
    fail_at_key(recipe, "data." + error.option(), error.what());
  }
  for (const std::string& example : result.data.info.skipped_examples) {
    result.notices.push_back("skipped: " + example);
  }
  if (const std::string& dropped = result.data.info.dropped; !dropped.empty()) {
    result.notices.push_back(str("the vocabulary has no token for ", dropped,
                                 ": the texts are read as if they were not there"));
  }
  if (result.data.info.open_chats && !recipe.tokenizer.add_eos) {
    const bool ends = result.tokenizer->special_ids().eos || tools.end_token;
    result.notices.push_back(
        str(result.chat_template->name(), ": does not end the last turn with a token that ends ",
            "texts, so that the model does not learn to stop there; ",
            ends ? "set tokenizer.add_eos = true" : "the tokenizer names no eos_token either"));
  }
  return result;
}

}  // namespace lumen::runtime
