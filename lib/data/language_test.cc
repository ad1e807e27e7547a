#include "lib/data/language.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "lib/base/limits.h"
#include "lib/base/testing.h"
#include "lib/data/builtin.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::temporary_directory;

constexpr const char* kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// One token per printable ASCII character, and the control tokens of ChatML.
std::shared_ptr<const text::Tokenizer> character_tokenizer(
    text::TokenizerKind kind = text::TokenizerKind::kCharacters, const std::string& bos = "") {
  std::string all = "\n";
  for (char c = ' '; c < '\x7F'; ++c) all += c;
  text::TokenizerTraining training;
  training.kind = kind;
  training.vocab_size = kind == text::TokenizerKind::kCharacters ? 0 : 400;
  training.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  if (!bos.empty()) training.special_tokens.push_back(bos);
  training.bos = bos;
  if (kind != text::TokenizerKind::kCharacters) all += make_stories().substr(0, 5000);
  const std::string directory = temporary_directory();
  text::train_tokenizer({all}, training, directory);
  return text::load_tokenizer(directory);
}

std::string write(const std::string& content, const std::string& name = "data.jsonl") {
  const std::string path = temporary_directory() + "/" + name;
  io::write_file_atomically(path, content);
  return path;
}

DataOptions options_for(Format format, const std::string& path) {
  DataOptions options;
  options.format = format;
  options.paths = {path};
  options.prefetch = false;
  options.shuffle = false;
  options.eval_fraction = 0;
  options.batch = 1;
  return options;
}

// The fields of a batch as vectors.
std::vector<int32_t> field(const Batch& batch, const char* name) {
  const auto values = batch.fields.at(name).as<int32_t>();
  return {values.begin(), values.end()};
}

// The text of the tokens, and of the targets that count with '.' for those that do not.
std::string tokens_of(const Batch& batch, const text::Tokenizer& tokenizer) {
  return tokenizer.decode(field(batch, "tokens"));
}
std::string learned_of(const Batch& batch, const text::Tokenizer& tokenizer) {
  std::string text;
  for (const int32_t id : field(batch, "targets")) {
    const std::vector<int32_t> one = {id};
    if (id == kIgnored) {
      text += '.';
    } else {
      text += tokenizer.is_special(id) ? tokenizer.token_text(id) : tokenizer.decode(one);
    }
  }
  return text;
}

TEST_CASE("windows in order cover a text once") {
  const auto tokenizer = character_tokenizer();
  DataOptions options = options_for(Format::kText, write("0123456789abcdef", "a.txt"));
  options.seq = 6;
  options.last_batch = LastBatch::kKeep;
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr}, &info);
  CHECK(info.train_tokens == 15);
  CHECK(info.vocab_size == tokenizer->vocab_size());
  std::string tokens, targets;
  for (Batch batch; stream->next(batch);) {
    tokens += tokens_of(batch, *tokenizer).substr(0, static_cast<size_t>(batch.tokens));
    targets += learned_of(batch, *tokenizer);
    CHECK(field(batch, "positions") == std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  }
  CHECK(tokens == "0123456789abcde");
  CHECK(targets == "123456789abcdef...");
}

TEST_CASE("shuffled windows move from epoch to epoch") {
  const auto tokenizer = character_tokenizer();
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>('!' + i % 89);
  DataOptions options = options_for(Format::kText, write(text, "a.txt"));
  options.seq = 10;
  options.shuffle = true;
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr});
  CHECK(stream->batches_per_epoch() == 18);
  std::set<int32_t> starts;
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::set<std::string> seen;
    for (Batch batch; stream->next(batch);) {
      const auto tokens = field(batch, "tokens"), targets = field(batch, "targets");
      CHECK(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
      seen.insert(tokens_of(batch, *tokenizer));
      starts.insert(tokens[0] % 10);
    }
    CHECK(seen.size() == 18);
  }
  CHECK(starts.size() > 3);
}

TEST_CASE("the last share of a text is for evaluation") {
  const auto tokenizer = character_tokenizer();
  DataOptions options = options_for(Format::kText, write("0123456789abcdefghij", "a.txt"));
  options.eval_fraction = 0.25;
  options.seq = 4;
  const auto stream = open_stream(options, Split::kEval, {tokenizer.get(), nullptr});
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(tokens_of(batch, *tokenizer) == "fghi");
  CHECK_FALSE(stream->next(batch));
}

TEST_CASE("start and end tokens are as the options say") {
  const auto tokenizer = character_tokenizer(text::TokenizerKind::kCharacters, "<s>");
  const auto chat_template = text::ChatTemplate::parse(kChatMl, "ChatML");
  const auto learned = [&](Format format, const std::string& content, std::optional<bool> add_bos,
                           std::optional<bool> add_eos, const std::string& separator = "") {
    DataOptions options = options_for(format, write(content));
    options.seq = 60;
    options.learn_all = true;
    options.separator = separator;
    options.add_bos = add_bos;
    options.add_eos = add_eos;
    options.last_batch = LastBatch::kKeep;
    const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), &chat_template});
    Batch batch;
    REQUIRE(stream->next(batch));
    const int32_t first = field(batch, "tokens")[0];
    std::string text = tokenizer->is_special(first) ? std::string(tokenizer->token_text(first))
                                                    : tokenizer->decode(std::vector{first});
    text += learned_of(batch, *tokenizer);
    return text.substr(0, text.find_last_not_of('.') + 1);
  };
  const std::string end = "<|endoftext|>";
  const auto check = [&](Format format, const std::string& content, const std::string& separator) {
    CHECK(learned(format, content, {}, {}, separator) == "<s>emma" + end);
    CHECK(learned(format, content, true, true, separator) == "<s>emma" + end);
    CHECK(learned(format, content, false, {}, separator) == "emma" + end);
    CHECK(learned(format, content, {}, false, separator) == "<s>emma");
    CHECK(learned(format, content, false, false, separator) == "emma");
  };
  check(Format::kLines, "emma\n", "");
  check(Format::kText, "emma", "---");
  check(Format::kJsonl, "{\"text\": \"emma\"}\n", "");
  check(Format::kJsonl, "{\"prompt\": \"em\", \"completion\": \"ma\"}\n", "");
  CHECK(learned(Format::kText, "emma", {}, {}) == "emma");
  CHECK(learned(Format::kText, "emma", true, {}) == "<s>emma");
  const std::string chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  const std::string said = "<|im_start|>user\na<|im_end|>\n";
  CHECK(learned(Format::kJsonl, chat, {}, {}) == "<s>" + said);
  CHECK(learned(Format::kJsonl, chat, false, true) == said + end);
}

TEST_CASE("lines are framed and padded") {
  const auto tokenizer = character_tokenizer();
  DataOptions options = options_for(Format::kLines, write("emma\r\n\nbo\n", "names.txt"));
  options.seq = 6;
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr});
  const int32_t end = *tokenizer->special_ids().eos;
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(tokens_of(batch, *tokenizer) == "<|endoftext|>emma<|endoftext|>");
  CHECK(learned_of(batch, *tokenizer) == "emma<|endoftext|>.");
  REQUIRE(stream->next(batch));
  CHECK(field(batch, "targets")[2] == end);
  CHECK(field(batch, "segments") == std::vector<int32_t>{0, 0, 0, -1, -1, -1});
  CHECK(field(batch, "positions") == std::vector<int32_t>{0, 1, 2, 0, 0, 0});
  CHECK(batch.tokens == 3);
}

TEST_CASE("characters that the vocabulary has no token for are named, in every format") {
  text::TokenizerTraining training;
  training.kind = text::TokenizerKind::kCharacters;
  training.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const std::string directory = temporary_directory();
  text::train_tokenizer({"user assistant\n"}, training, directory);
  const auto tokenizer = text::load_tokenizer(directory);
  const auto chat_template = text::ChatTemplate::parse(kChatMl, "ChatML");
  const auto dropped = [&](Format format, const std::string& content,
                           const std::string& separator = "") {
    DataOptions options = options_for(format, write(content));
    options.separator = separator;
    options.learn_all = separator == "all";
    return open_data(options, {tokenizer.get(), &chat_template}).info.dropped;
  };
  CHECK(dropped(Format::kText, "user\r\n ant") == "");
  CHECK(dropped(Format::kText, "usér ж ant ж") == "'é', 'ж'");
  CHECK(dropped(Format::kText, "usér---ant", "---") == "'é'");
  CHECK(dropped(Format::kLines, "ant\nusér\n") == "'é'");
  CHECK(dropped(Format::kJsonl, "{\"prompt\": \"usé\", \"completion\": \"ant\"}\n") == "'é'");
  // The characters of ChatML's control tokens are not those of the text.
  const std::string chat =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"us\"}, {\"role\": "
      "\"assistant\", \"content\": \"anté\"}]}\n";
  CHECK(dropped(Format::kJsonl, chat) == "'é'");
  CHECK(dropped(Format::kJsonl, chat, "all") == "'é'");
}

TEST_CASE("the tokens of text and what of them is learned have a hash") {
  const auto single = character_tokenizer(),
             pairs = character_tokenizer(text::TokenizerKind::kByteLevelBpe);
  const TextTools characters = {single.get(), nullptr}, bytes = {pairs.get(), nullptr};
  const std::string file = write("abc abd\nabe\n", "a.txt");
  for (const Format format : {Format::kText, Format::kLines}) {
    const DataOptions options = options_for(format, file);
    const std::string hash = open_data(options, characters).info.tokens_sha256;
    CHECK(hash.size() == 64);
    CHECK(open_data(options, characters).info.tokens_sha256 == hash);
    CHECK(open_data(options, bytes).info.tokens_sha256 != hash);
  }
  const std::string row = write("{\"prompt\": \"ab\", \"completion\": \"cd\"}\n");
  DataOptions options = options_for(Format::kJsonl, row);
  const std::string answers = open_data(options, characters).info.tokens_sha256;
  options.learn_all = true;
  CHECK(open_data(options, characters).info.tokens_sha256 != answers);
}

TEST_CASE("packing fills rows and keeps documents apart") {
  const auto tokenizer = character_tokenizer();
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    rows += "{\"text\": \"" +
            std::string(static_cast<size_t>(1 + i % 7), static_cast<char>('A' + i)) + "\"}\n";
  }
  // Backslash and quote would need escapes.
  for (char& c : rows) c = c == '\\' ? 'z' : c;
  DataOptions options = options_for(Format::kJsonl, write(rows));
  options.seq = 16;
  options.pack = true;
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr}, &info);
  CHECK(info.documents == 40);
  double tokens = 0;
  int64_t padding = 0, rows_seen = 0;
  for (Batch batch; stream->next(batch); ++rows_seen) {
    const auto ids = field(batch, "tokens"), targets = field(batch, "targets");
    const auto segments = field(batch, "segments"), positions = field(batch, "positions");
    tokens += batch.tokens;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (segments[i] == kPadding) {
        ++padding;
        CHECK(targets[i] == kIgnored);
        continue;
      }
      const bool begins = i == 0 || segments[i] != segments[i - 1];
      CHECK(positions[i] == (begins ? 0 : positions[i - 1] + 1));
      CHECK(segments[i] == (i == 0 ? 0 : segments[i - 1] + (begins ? 1 : 0)));
      // One letter per document: whoever sees another sees a neighbour.
      const bool last = i + 1 == ids.size() || segments[i + 1] != segments[i];
      CHECK(targets[i] == (last ? *tokenizer->special_ids().eos : ids[i]));
    }
  }
  CHECK(tokens == info.train_tokens);
  CHECK(padding < 20);
  CHECK(rows_seen == stream->batches_per_epoch());
}

TEST_CASE("long documents are refused, cut, skipped or continued") {
  const auto tokenizer = character_tokenizer();
  DataOptions options = options_for(Format::kJsonl, write(R"({"text": "abcdefghij"}
{"text": "xy"})"));
  options.seq = 4;
  const text::Tokenizer& t = *tokenizer;
  const auto learned = [&](OnTooLong rule, DatasetInfo* info) {
    options.on_too_long = rule;
    const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr}, info);
    std::vector<std::string> rows;
    for (Batch batch; stream->next(batch);) rows.push_back(learned_of(batch, t));
    return rows;
  };
  DatasetInfo info;
  CHECK(contains(
      refusal(ErrorKind::kMismatch, [&] { learned(OnTooLong::kError, &info); }),
      "data.jsonl: line 1: has 11 tokens, a row of max_length = 4 holds 5; set max_length = 10"));
  CHECK(learned(OnTooLong::kTruncate, &info) ==
        std::vector<std::string>{"bcde", "y<|endoftext|>.."});
  const auto counts = [&] {
    const SourceFile& file = info.files[0];
    CHECK((info.too_long == file.too_long && info.cut == file.cut));
    return std::vector<int64_t>{file.samples, file.skipped, file.too_long, file.cut};
  };
  CHECK(counts() == std::vector<int64_t>{2, 0, 0, 1});
  CHECK(learned(OnTooLong::kSkip, &info) == std::vector<std::string>{"y<|endoftext|>.."});
  CHECK(counts() == std::vector<int64_t>{1, 0, 1, 0});
  CHECK(learned(OnTooLong::kSplit, &info) ==
        std::vector<std::string>{"bcde", "fghi", "j<|endoftext|>..", "y<|endoftext|>.."});
}

TEST_CASE("text is divided into documents at a separator") {
  const auto tokenizer = character_tokenizer();
  DataOptions options =
      options_for(Format::kText, write("one\n<|endoftext|>\ntwo\n\n<|endoftext|>\n", "a.txt"));
  options.separator = "<|endoftext|>";
  options.seq = 4;
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr});
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(learned_of(batch, *tokenizer) == "ne<|endoftext|>.");
  REQUIRE(stream->next(batch));
  CHECK(learned_of(batch, *tokenizer) == "wo<|endoftext|>.");
  CHECK_FALSE(stream->next(batch));
}

TEST_CASE("of a prompt and its completion the completion is learned") {
  const auto character = character_tokenizer();
  DataOptions options =
      options_for(Format::kJsonl, write(R"({"prompt": "2+2=", "completion": "4"})"));
  options.seq = 8;
  Batch batch;
  open_stream(options, Split::kTrain, {character.get(), nullptr})->next(batch);
  CHECK(learned_of(batch, *character) == "...4<|endoftext|>...");
  options.learn_all = true;
  open_stream(options, Split::kTrain, {character.get(), nullptr})->next(batch);
  CHECK(learned_of(batch, *character) == "+2=4<|endoftext|>...");
}

TEST_CASE("ShareGPT's conversations and Alpaca's instructions are learned like messages") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  const auto learned = [&](const std::string& row, bool all) {
    DataOptions options = options_for(Format::kJsonl, write(row));
    options.seq = 128;
    options.learn_all = all;
    Batch batch;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    return learned_of(batch, *tokenizer);
  };
  const char* messages = R"({"messages": [{"role": "system", "content": "Be"},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})";
  const char* shared = R"({"id": "x", "conversations": [{"from": "system", "value": "Be"},
      {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]})";
  const auto one_line = [](std::string text) { return std::erase(text, '\n'), text; };
  for (const bool all : {false, true}) {
    CHECK(learned(one_line(shared), all) == learned(one_line(messages), all));
  }
  CHECK(contains(learned(one_line(shared), false), "Yo<|im_end|>"));

  const std::string asked = R"({"messages": [{"role": "user", "content": "Add\n\n1 2"},)"
                            R"( {"role": "assistant", "content": "3"}]})";
  const std::string bare = R"({"messages": [{"role": "user", "content": "Add"},)"
                           R"( {"role": "assistant", "content": "3"}]})";
  for (const bool all : {false, true}) {
    CHECK(learned(R"({"instruction": "Add", "input": "1 2", "output": "3"})", all) ==
          learned(asked, all));
    for (const char* input : {"", R"("input": "", )", R"("input": null, )"}) {
      CHECK(learned(str(R"({"instruction": "Add", )", input, R"("output": "3"})"), all) ==
            learned(bare, all));
    }
  }
}

TEST_CASE("where the tokenizer names no end token, that of the model's config ends documents") {
  const auto tokenizer = text::load_tokenizer(write(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "<end>": 4},
          "merges": []}, "added_tokens": [{"id": 4, "content": "<end>", "special": true}]})",
      "tokenizer.json"));
  REQUIRE_FALSE(tokenizer->special_ids().eos);
  const std::string row = write(R"({"prompt": "ab", "completion": "cd"})");
  DataOptions options = options_for(Format::kJsonl, row);
  options.seq = 6;
  Batch batch;
  open_stream(options, Split::kTrain, {tokenizer.get()})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".cd...");
  open_stream(options, Split::kTrain, {tokenizer.get(), nullptr, 4})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".cd<end>..");
  options.add_eos = false;
  open_stream(options, Split::kTrain, {tokenizer.get(), nullptr, 4})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".cd...");
}

TEST_CASE("a token never reaches over the boundary of what is learned") {
  const auto bpe = character_tokenizer(text::TokenizerKind::kByteLevelBpe);
  // " the" is one token; here it is cut by the end of the prompt.
  REQUIRE(bpe->encode("of the", {.add_special = false}).size() <= 3);
  DataOptions options =
      options_for(Format::kJsonl, write(R"({"prompt": "of th", "completion": "e"})"));
  options.seq = 16;
  Batch batch;
  open_stream(options, Split::kTrain, {bpe.get(), nullptr})->next(batch);
  std::string learned = learned_of(batch, *bpe);
  std::erase(learned, '.');
  CHECK(learned == "e<|endoftext|>");
  CHECK(tokens_of(batch, *bpe).starts_with("of the"));
}

TEST_CASE("of a conversation the assistant's turns are learned, with their ends") {
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  const std::string rows = write(
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},)"
      R"( {"role": "assistant", "content": "Yo"}, {"role": "user", "content": "Bye"},)"
      R"( {"role": "assistant", "content": "Ok"}]})");
  for (const auto kind : {text::TokenizerKind::kCharacters, text::TokenizerKind::kByteLevelBpe,
                          text::TokenizerKind::kSentencePieceBpe}) {
    const auto tokenizer = character_tokenizer(kind);
    INFO(tokenizer->kind());
    DataOptions options = options_for(Format::kJsonl, rows);
    options.seq = 200;
    Batch batch;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    std::string learned = learned_of(batch, *tokenizer);
    std::erase(learned, '.');
    std::erase(learned, ' ');  // sentencepiece's mark of a word
    CHECK(learned == "Yo<|im_end|>Ok<|im_end|>");
    options.learn_roles = {"user"};
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    learned = learned_of(batch, *tokenizer);
    std::erase(learned, '.');
    std::erase(learned, ' ');
    CHECK(learned == "Hi<|im_end|>Bye<|im_end|>");
    options.learn_all = true;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    learned = learned_of(batch, *tokenizer);
    // All but the first token, which no other predicts: the template's words too.
    CHECK(contains(learned, "system"));
    CHECK(contains(learned, "user"));
    CHECK(std::count(learned.begin(), learned.end(), '\n') >= 9);
  }
}

// Real templates rewrite what they are given in many ways. Whatever is learned must be what the
// assistant said, all of it and nothing else, or the rows must be refused.
TEST_CASE("with the templates of real models only answers are learned") {
  LUMEN_SHARED_DATA(folder, "chat-templates/jinja");
  const auto tokenizer = character_tokenizer(text::TokenizerKind::kCharacters, "<|bos|>");
  const std::string one = R"({"role": "user", "content": "alpha?"},)"
                          R"( {"role": "assistant", "content": "bravo!"})";
  const std::string two = one + R"(, {"role": "user", "content": "charlie?"},)"
                                R"( {"role": "assistant", "content": "delta!"})";
  int learned_from = 0, refused = 0;
  for (const std::string& name : list_directory(folder)) {
    const auto chat =
        text::ChatTemplate::parse(io::read_file(folder + "/" + name, limits::kTemplateBytes), name);
    for (const std::string& turns : {one, two}) {
      INFO(name << ": " << turns);
      DataOptions options = options_for(Format::kJsonl, write("{\"messages\": [" + turns + "]}"));
      options.seq = 16384;
      Batch batch;
      try {
        open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
      } catch (const Error& error) {
        INFO(error.what());
        CHECK(contains(error.what(), "line 1, column 1: "));
        ++refused;
        continue;
      }
      ++learned_from;
      const std::string learned = learned_of(batch, *tokenizer);
      CHECK(contains(learned, "bravo!"));
      CHECK(contains(learned, "delta!") == (turns == two));
      CHECK_FALSE(contains(learned, "alpha"));
      CHECK_FALSE(contains(learned, "charlie"));
      CHECK_FALSE(contains(learned, "user"));
    }
  }
  CHECK(learned_from == 70);
  CHECK(refused == 2);  // one template wants tools
}

TEST_CASE("question files") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  DataOptions options = options_for(
      Format::kFaq,
      write("# about\nQ: who?\nQ: who is it?\nH: it?\nA: me\n\nQ: b?\nA: c\n", "f.txt"));
  options.eval_fraction.reset();
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kEval, {tokenizer.get(), &chat}, &info);
  CHECK(info.documents == 4);
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(contains(tokens_of(batch, *tokenizer), "it?"));
  CHECK_FALSE(stream->next(batch));
  options.paths = {write("Q: who?\n\nA: me\n", "f.txt")};
  const std::string why = refusal(ErrorKind::kMalformed, [&] {
    open_data(options, {tokenizer.get(), &chat});
  });
  CHECK(contains(why, "f.txt: line 1, column 1: the block that ends here has no answer"));
}

TEST_CASE("a question is also put in lower case, as a sentence, and with words left out") {
  const auto spellings = [](std::string_view question) {
    std::vector<std::string> questions;
    add_variants({question, "", false, 3}, 1, questions);
    return questions;
  };
  CHECK(spellings("Who made lumen?") ==
        std::vector<std::string>{"who made lumen", "Who made Lumen?"});
  CHECK(spellings("lumen-run's flags") == std::vector<std::string>{"lumen-run's flags"});
  CHECK(spellings("") == std::vector<std::string>{""});
  const auto long_one = spellings("tell me about lumen");
  REQUIRE(long_one.size() == 5);
  CHECK(long_one[1] == "Tell me about Lumen");
}

TEST_CASE("bad blocks of question files are left out whole and counted, if that is allowed") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  DataOptions options = options_for(
      Format::kFaq,
      write("Q: a?\nA: b\n\nQ: c?\nwhat\nA: d\n\nQ: e?\n\nQ: f?\nH: ff?\nA: g\n", "f.txt"));
  options.eval_fraction.reset();
  const TextTools tools = {tokenizer.get(), &chat};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options, tools); }),
                 "f.txt: line 5, column 1: expected a line that begins with"));
  options.on_bad_row = OnBadRow::kSkip;
  const Data data = open_data(options, tools);
  CHECK(data.info.skipped == 2);
  REQUIRE(data.info.skipped_examples.size() == 2);
  CHECK(contains(data.info.skipped_examples[1], "line 8, column 1: the block that ends here"));
  CHECK(data.train->samples() == 2);
  CHECK(data.eval->samples() == 1);
  CHECK(read_texts(options)[0] == "a?\nb\nf?\ng\nff?\ng\n");
}

TEST_CASE("what a template shows otherwise in earlier turns is learned as it is shown") {
  // As Qwen3's: thoughts are shown in the last turn only, which has empty ones if there are none.
  const auto chat = text::ChatTemplate::parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
      "{% if loop.last %}{{ m.content if '</think>' in m.content else '<think></think>' + "
      "m.content "
      "}}{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}"
      "{% for call in m.tool_calls or [] %}[{{ call.name }}]{% endfor %}"
      "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "thinking");
  const auto tokenizer = character_tokenizer();
  const auto learned = [&](const std::string& first) {
    DataOptions options = options_for(
        Format::kJsonl, write(R"({"messages": [{"role": "user", "content": "a"}, )" + first +
                              R"(, {"role": "user", "content": "b"},)"
                              R"( {"role": "assistant", "content": "Ok"}]})"));
    options.seq = 200;
    Batch batch;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    std::string text = learned_of(batch, *tokenizer);
    std::erase(text, '.');
    return text;
  };
  const std::string last = "<think></think>Ok<|im_end|>";
  CHECK(learned(R"({"role": "assistant", "content": "<think>b</think>Hey"})") ==
        "Hey<|im_end|>" + last);
  CHECK(learned(R"({"role": "assistant", "content": "<think>b</think>b xy"})") ==
        "b xy<|im_end|>" + last);
  CHECK(learned(R"({"role": "assistant", "content": "", "tool_calls": [{"name": "see"}]})") ==
        "[see]<|im_end|>" + last);
}

TEST_CASE("a template that hides who spoke is refused") {
  const auto tokenizer = character_tokenizer();
  // The beginning changes with the number of messages, the contents are changed too.
  const auto chat = text::ChatTemplate::parse(
      "{{ messages | length }}{% for m in messages %}{{ m.content | upper }}{% endfor %}",
      "counting");
  DataOptions options =
      options_for(Format::kJsonl, write(R"({"messages": [)"
                                        R"({"role": "user", "content": "a"},)"
                                        R"({"role": "assistant", "content": "b"}]})"));
  const std::string why = refusal(ErrorKind::kMalformed, [&] {
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat});
  });
  CHECK(contains(why, "data.jsonl: line 1, column 1: message 2 ('assistant') cannot be found"));
  CHECK(contains(why, "'counting'"));
  // Unless its author marks it.
  const auto marked = text::ChatTemplate::parse(
      "{{ messages | length }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation "
      "%}{{ m.content | upper }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}{% endif "
      "%}{% endfor "
      "%}",
      "marked");
  Batch batch;
  options.seq = 5;
  open_stream(options, Split::kTrain, {tokenizer.get(), &marked})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".B<|im_end|>..");
}

TEST_CASE("bad rows are named with line and column, or skipped and counted") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  struct Case {
    std::string row;
    const char* message;
  };
  const Case cases[] = {
      {R"({"text": "abc)", "line 3, column 14: the JSON ends too early"},
      {R"({"text": 5})", "line 3, column 10: \"text\" is the number 5, expected a string"},
      {R"([1])", "line 3, column 1: found an array of 1, expected an object"},
      {R"({"txt": "a"})", "line 3, column 1: found an object with 'txt', expected \"messages\""},
      {R"({})", "an object with no keys"},
      {R"({"prompt": "a"})", "\"completion\" is nothing, expected a string"},
      {R"({"instruction": "a"})", "\"output\" is nothing, expected a string"},
      {R"({"output": "a"})", "\"instruction\" is nothing, expected a string"},
      {R"({"instruction": "a", "input": 7, "output": "b"})",
       "line 3, column 31: \"input\" is the number 7"},
      {R"({"conversations": {}})", "line 3, column 19: \"conversations\" is an object"},
      {R"({"conversations": [{"from": "human"}]})", "line 3, column 20: \"value\" is nothing"},
      {R"({"conversations": [{"from": "bing", "value": "a"}]})",
       "line 3, column 29: \"from\" is 'bing', expected human, gpt or system"},
      {R"({"messages": []})", "line 3, column 14: \"messages\" is an array of 0"},
      {R"({"messages": [7]})", "line 3, column 15: message 1 is the number 7"},
      {R"({"messages": [{"role": 1}]})", "line 3, column 24: \"role\" is the number 1"},
      {R"({"messages": [{"role": "user"}]})", "line 3, column 15: \"content\" is nothing"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "no message of the roles"},
      {R"({"text": ""})", "line 3, column 1: has no text to learn from"},
      {"{\"text\": \"\xC3\xA9\xFFz\"}", "line 3, column 12: found the byte 0xFF, expected UTF-8"},
      {R"({"text": "a", "text": "b"})", "line 3"},
      {std::string(40, '[') + std::string(40, ']'), "line 3"},
  };
  for (const Case& bad : cases) {
    DataOptions options = options_for(
        Format::kJsonl, write("{\"text\": \"good\"}\n\n" + bad.row + "\n{\"text\": \"x\"}"));
    const std::string why = refusal(ErrorKind::kMalformed, [&] {
      open_stream(options, Split::kTrain, {tokenizer.get(), &chat});
    });
    INFO(why);
    CHECK(contains(why, "data.jsonl: line 3"));
    CHECK(contains(why, bad.message));
    options.on_bad_row = OnBadRow::kSkip;
    DatasetInfo info;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat}, &info);
    CHECK(info.skipped == 1);
    CHECK(info.documents == 2);
    REQUIRE(info.skipped_examples.size() == 1);
    CHECK(info.skipped_examples[0] == why);
  }
}

TEST_CASE("text that is not UTF-8 is refused with its place") {
  const auto tokenizer = character_tokenizer();
  DataOptions options = options_for(Format::kText, write("good\nba\xFF"
                                                         "d\nfine",
                                                         "a.txt"));
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           open_stream(options, Split::kTrain, {tokenizer.get(), nullptr});
                         }),
                 "a.txt: line 2, column 3: found the byte 0xFF"));
  // What a tokenizer is trained on too.
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { read_texts(options); }),
                 "a.txt: line 2, column 3: found the byte 0xFF"));
  options.on_bad_row = OnBadRow::kSkip;
  CHECK(read_texts(options)[0] == "good\nfine");
  DatasetInfo info;
  open_stream(options, Split::kTrain, {tokenizer.get(), nullptr}, &info);
  CHECK(info.skipped == 1);
  CHECK(info.train_tokens == 8);
}

TEST_CASE("token files of nanoGPT and llm.c") {
  std::string tokens;
  for (int i = 0; i < 50; ++i) tokens += {static_cast<char>(i), '\1'};
  DataOptions options = options_for(Format::kBin, write(tokens, "train.bin"));
  options.seq = 7;
  DatasetInfo info;
  const auto stream = open_stream(options, Split::kTrain, {}, &info);
  CHECK(info.vocab_size == 256 + 50);
  CHECK(info.train_tokens == 49);
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(field(batch, "targets") == std::vector<int32_t>{257, 258, 259, 260, 261, 262, 263});

  std::string header(1024, '\0');
  const uint32_t start[] = {20240520, 1, 50};
  std::copy_n(reinterpret_cast<const char*>(start), 12, header.begin());
  options.paths = {write(header + tokens, "train.bin")};
  open_stream(options, Split::kTrain)->next(batch);
  CHECK(field(batch, "tokens")[0] == 256);
  options.paths = {write(header + tokens + "xx", "train.bin")};
  CHECK(
      contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "announces 50 tokens"));
  options.paths = {write(tokens + "x", "train.bin")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "101 bytes"));
  const auto tokenizer = character_tokenizer();
  options.paths = {write(tokens, "train.bin")};
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           open_data(options, {tokenizer.get(), nullptr});
                         }),
                 "token 1 (byte 0) is 256, the vocabulary has"));
}

TEST_CASE("what is built in can be trained on") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(kChatMl, "chatml");
  const text::Tokenizer* t = tokenizer.get();
  DatasetInfo info;
  open_stream(options_for(Format::kText, "builtin:stories"), Split::kTrain, {t, nullptr}, &info);
  CHECK(info.train_tokens > 90'000);
  open_stream(options_for(Format::kLines, "builtin:names"), Split::kTrain, {t, nullptr}, &info);
  CHECK(info.documents == 3000);
  open_stream(options_for(Format::kJsonl, "builtin:chat"), Split::kTrain, {t, &chat}, &info);
  CHECK(info.documents == 400);
  CHECK(info.files[0].path == "builtin:chat");
  CHECK(info.files[0].sha256.size() == 64);
  CHECK(
      contains(refusal(ErrorKind::kMissing, [] { builtin_text("builtin:x"); }), "builtin:stories"));
  CHECK_FALSE(contains(make_stories(), "{"));
  CHECK_FALSE(contains(make_stories(), "["));
}

TEST_CASE("text needs a tokenizer, conversations a template") {
  const auto tokenizer = character_tokenizer();
  CHECK(contains(
      refusal(ErrorKind::kUsage, [] { open_data(options_for(Format::kText, "builtin:stories")); }),
      "need a tokenizer"));
  CHECK(contains(
      refusal(ErrorKind::kUsage,
              [&] {
                open_data(options_for(Format::kJsonl, "builtin:chat"), {tokenizer.get(), nullptr});
              }),
      "need a chat template"));
}

}  // namespace
}  // namespace lumen::data
