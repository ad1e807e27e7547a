#include "lib/data/language.h"

#include <algorithm>
#include <set>

#include "lib/data/builtin.h"
#include "lib/data/text_batches.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::temporary_directory;
using testing::character_tokenizer;
using testing::field;
using testing::kChatMl;
using testing::learned_of;
using testing::options_for;
using testing::tokens_of;
using testing::write;

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
  options.seq = 60;  // of which no row needs more than the longest line
  const auto stream = open_stream(options, Split::kTrain, {tokenizer.get(), nullptr});
  const int32_t end = *tokenizer->special_ids().eos;
  Batch batch;
  REQUIRE(stream->next(batch));
  CHECK(tokens_of(batch, *tokenizer) == "<|endoftext|>emma");
  CHECK(learned_of(batch, *tokenizer) == "emma<|endoftext|>");
  REQUIRE(stream->next(batch));
  CHECK(field(batch, "targets")[2] == end);
  CHECK(field(batch, "segments") == std::vector<int32_t>{0, 0, 0, -1, -1});
  CHECK(field(batch, "positions") == std::vector<int32_t>{0, 1, 2, 0, 0});
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
  CHECK(learned(OnTooLong::kSkip, &info) == std::vector<std::string>{"y<|endoftext|>"});
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
  CHECK(learned_of(batch, *tokenizer) == "ne<|endoftext|>");
  REQUIRE(stream->next(batch));
  CHECK(learned_of(batch, *tokenizer) == "wo<|endoftext|>");
  CHECK_FALSE(stream->next(batch));
}

TEST_CASE("a file of rows may be one array of them, on one line or on many") {
  const auto rows_of = [](const std::string& text) {
    std::vector<std::string> rows;
    for_each_json_row(text, [&](const TextLine& row) {
      rows.push_back(parse_json_row(row).dump() + str(" ", row.number, ":", row.indent));
    });
    return rows;
  };
  using Rows = std::vector<std::string>;
  const std::string a = R"({"a":"[\\\"},{"})", b = R"({"b":[[1]]})";
  CHECK(rows_of("[" + a + "," + b + "]") == Rows{a + " 1:1", b + str(" 1:", a.size() + 2)});
  CHECK(rows_of("\xEF\xBB\xBF \r\n[\r\n  " + a + " ,\n  {\n \"b\": [[1]]\n}\n]\n") ==
        Rows{a + " 3:2", b + " 4:2"});
  CHECK(rows_of("[]").empty());
  CHECK(rows_of(a + "\n\n" + b) == Rows{a + " 1:0", b + " 3:0"});
  const std::pair<const char*, const char*> refused[] = {
      {"[", "line 1, column 2: found the end, expected a row"},
      {"[{}", "line 1, column 4: found the end, expected , or ] behind a row"},
      {"[{},", "line 1, column 5: found the end, expected a row"},
      {"[{},]", "line 1, column 5: found ']', expected a row"},
      {"[,{}]", "line 1, column 2: found ',', expected a row"},
      {"[{}\n {}]", "line 2, column 2: found '{', expected , or ] behind a row"},
      {"[{}]\n[{}]", "line 2, column 1: found '[', expected nothing behind the array"},
      {"[{\"é\": \"é\"}, {\"a\": x}]", "line 1, column 20: "},
      {"[{\"a\": 1}, {\n\"a\":\n x}]", "line 3, column 2: "},
      {"[{\"a\": 1}, 5]", "line 1, column 12: found the number 5, expected an object"},
      {"[{\"a\": \"b}]", "line 1, column 12: "}};
  for (const auto& [text, message] : refused) {
    INFO(text);
    CHECK(contains(refusal(ErrorKind::kMalformed, [&, &t = text] { rows_of(t); }), message));
  }
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
      {R"([1])", "line 3, column 1: found the beginning of an array, expected an object on this"},
      {"  {", "line 3, column 3: found the beginning of an object of several lines, expected an"},
      {"5", "line 3, column 1: found the number 5, expected an object"},
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
       "line 3, column 29: \"from\" is 'bing', expected human or user, gpt or assistant, system"},
      {R"({"conversations": [{"role": "bing", "content": "a"}]})",
       "line 3, column 29: \"role\" is 'bing', expected human or user"},
      {R"({"messages": [{"from": "function_call", "value": "a"}]})",
       "line 3, column 24: \"from\" is 'function_call', expected human or user"},
      {R"({"conversations": [{"value": "a"}]})",
       "line 3, column 20: a message has no \"from\" and no \"role\""},
      {R"({"messages": []})", "line 3, column 14: \"messages\" is an array of 0"},
      {R"({"messages": [7]})", "line 3, column 15: message 1 is the number 7"},
      {R"({"messages": [{"role": 1}]})", "line 3, column 24: \"role\" is the number 1"},
      {R"({"messages": [{"role": "user"}]})", "line 3, column 15: \"content\" is nothing"},
      {R"({"messages": [{"role": "user", "content": "a"}]})",
       "no message of the roles that are learned (assistant); there are messages of 'user'"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]})",
       "there are messages of 'user', 'bot'"},
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
  options.paths = {write("\x93NUMPY" + tokens, "train.npy")};
  CHECK(contains(refusal(ErrorKind::kUnsupported, [&] { open_data(options); }), "tofile()"));
  const auto tokenizer = character_tokenizer();
  options.paths = {write(tokens, "train.bin")};
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           open_data(options, {tokenizer.get(), nullptr});
                         }),
                 "token 1 (byte 0) is 256, the vocabulary has"));
}

TEST_CASE("the first windows of token files, as many as are wanted") {
  std::string tokens;
  for (int i = 0; i < 50; ++i) tokens += {static_cast<char>(i), '\0'};
  DataOptions options = options_for(Format::kBin, write(tokens, "1.bin"));
  options.paths.push_back(write(tokens, "2.bin"));
  options.seq = 10;
  const auto samples = [&](int64_t most) {
    options.max_samples = most;
    const Data data = open_data(options);
    CHECK(data.info.train_tokens <= static_cast<double>(10 * data.train->samples()));
    return data.train->samples();
  };
  CHECK(samples(0) == 10);
  CHECK(samples(int64_t{1} << 40) == 10);
  CHECK(samples(7) == 7);  // of both files
  CHECK(samples(3) == 3);
  options.eval_fraction = 0.5;
  CHECK(samples(2) == 2);  // of each file a half
  CHECK(open_data(options).eval->samples() == 2);
}

TEST_CASE("token files without a tokenizer have tokens of the model") {
  const DataOptions options = options_for(Format::kBin, write({'\1', '\0', '\7', '\0'}, "a.bin"));
  TextTools model;
  model.vocab_size = 8;
  CHECK(open_data(options, model).info.vocab_size == 8);
  model.vocab_size = 7;
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options, model); }),
                 "a.bin: token 2 (byte 2) is 7, the vocabulary has 7 tokens"));
}

TEST_CASE("files with nothing to train on are named") {
  const auto tokenizer = character_tokenizer();
  const auto why = [&](const DataOptions& options) {
    return refusal(ErrorKind::kMalformed, [&] { open_data(options, {tokenizer.get(), nullptr}); });
  };
  CHECK(contains(why(options_for(Format::kText, write("a", "a.txt"))),
                 "a.txt: gives 1 token for training, expected at least 2"));
  DataOptions tokens = options_for(Format::kBin, write({'\1', '\0', '\7', '\0'}, "a.bin"));
  tokens.eval_fraction = 0.5;
  CHECK(contains(why(tokens), "a.bin: has no tokens to train on"));
  DataOptions lines = options_for(Format::kLines, write("abcdef\nabcdefg\n\xFF\n", "a.txt"));
  lines.seq = 3;
  lines.on_too_long = OnTooLong::kSkip;
  lines.on_bad_row = OnBadRow::kSkip;
  CHECK(contains(why(lines),
                 "a.txt: has no documents to train on; bad rows left out: 1; left out "
                 "as longer than max_length = 3: 2"));
}

TEST_CASE("of documents that come with others for evaluation as many are drawn as are wanted") {
  const auto tokenizer = character_tokenizer();
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::string(1, static_cast<char>('0' + i)) + "\n";
  DataOptions options = options_for(Format::kLines, write(lines, "a.txt"));
  options.eval_fraction.reset();
  options.eval_paths = {write(lines, "b.txt")};
  options.max_samples = 5;
  options.batch = 5;
  const Data data = open_data(options, {tokenizer.get(), nullptr});
  CHECK(data.train->samples() == 5);
  CHECK(data.eval->samples() == 5);
  Batch batch;
  make_stream(data, Split::kTrain, options)->next(batch);
  const std::string drawn = tokens_of(batch, *tokenizer);
  const auto is_there = [&](char c) { return drawn.find(c) != drawn.npos; };
  CHECK_FALSE((is_there('0') && is_there('1') && is_there('2') && is_there('3')));
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

}  // namespace
}  // namespace lumen::data
