// What is learned of prompts, conversations and question files.
#include <algorithm>

#include "lib/base/limits.h"
#include "lib/data/language.h"
#include "lib/data/text_batches.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::character_tokenizer;
using testing::kChatMl;
using testing::learned_of;
using testing::options_for;
using testing::tokens_of;
using testing::write;

// What is learned of a row of JSONL; conversations have the template kChatMl.
std::string learned_of_row(const std::string& row, bool all,
                           const std::string& chat_template = kChatMl) {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(chat_template, "chatml");
  DataOptions options = options_for(Format::kJsonl, write(row));
  options.seq = 128;
  options.learn_all = all;
  Batch batch;
  open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
  return learned_of(batch, *tokenizer);
}

TEST_CASE("of a prompt and its completion the completion is learned") {
  const auto character = character_tokenizer();
  DataOptions options =
      options_for(Format::kJsonl, write(R"({"prompt": "2+2=", "completion": "4"})"));
  options.seq = 8;
  Batch batch;
  open_stream(options, Split::kTrain, {character.get(), nullptr})->next(batch);
  CHECK(learned_of(batch, *character) == "...4<|endoftext|>");
  options.learn_all = true;
  open_stream(options, Split::kTrain, {character.get(), nullptr})->next(batch);
  CHECK(learned_of(batch, *character) == "+2=4<|endoftext|>");
}

TEST_CASE("of messages as prompt and completion those of the completion are learned") {
  const std::string row =
      R"({"prompt": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"},)"
      R"( {"role": "user", "content": "C"}], "completion": [{"role": "assistant",)"
      R"( "content": "D"}, {"role": "user", "content": "E"}, {"role": "assistant",)"
      R"( "content": "F"}]})";
  const std::string learned = learned_of_row(row, false);
  for (const char* text : {"D<|im_end|>", "F<|im_end|>"}) CHECK(contains(learned, text));
  for (const char* text : {"A", "B", "C", "E"}) CHECK_FALSE(contains(learned, text));
  const std::string all = learned_of_row(row, true);
  for (const char* text : {"A", "B", "C", "D", "E", "F"}) CHECK(contains(all, text));

  const auto refused = [](const std::string& bad) {
    return refusal(ErrorKind::kMalformed, [&] { learned_of_row(bad, false); });
  };
  CHECK(contains(refused(R"({"prompt": [{"role": "user", "content": "A"}], "completion": "B"})"),
                 "\"completion\" is the string 'B', expected an array of at least one message"));
  CHECK(contains(refused(R"({"prompt": ["A"], "completion": []})"),
                 "message 1 is the string 'A', expected an object with \"role\" and \"content\""));
}

TEST_CASE("calls of tools are learned as objects, and refused where the template drops them") {
  const std::string shows =
      "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
      "{% for call in message.tool_calls %}{{ call.function.name }}"
      "{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto row = [](const std::string& arguments) {
    return str(
        R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "",)",
        R"( "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )",
        arguments, R"(}}]}, {"from": "tool", "value": "5"}, {"from": "gpt", "value": "Yo"}]})");
  };
  // As a text, as in OpenAI's API, and as an object.
  const std::string learned = learned_of_row(row(R"("{\"a\": 1}")"), false, shows);
  CHECK(contains(learned, R"(f{"a": 1}<|im_end|>)"));
  CHECK(contains(learned, "Yo<|im_end|>"));
  CHECK_FALSE(contains(learned, "5"));
  CHECK(learned_of_row(row(R"({"a": 1})"), false, shows) == learned);

  const auto refused = [&](const std::string& text, const std::string& chat_template) {
    return refusal(ErrorKind::kMalformed, [&] { learned_of_row(text, false, chat_template); });
  };
  CHECK(contains(refused(row(R"("{a")"), shows), "line 1, column "));
  CHECK(contains(refused(row(R"("{a")"), shows), "the arguments of a tool call: "));
  CHECK(contains(refused(row("{}"), kChatMl),
                 "the calls of tools of message 2 are left out by the chat template 'chatml'"));
  // The tools themselves, which not every template shows, either.
  const auto offering = [](const std::string& tools) {
    return str(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant",)",
               R"( "content": "Yo"}], "tools": )", tools, "}");
  };
  const std::string tool = R"([{"type": "function", "function": {"name": "f"}}])";
  CHECK(contains(learned_of_row(offering(tool), true, str("{{ tools | tojson }}", kChatMl)),
                 R"("name": "f")"));
  CHECK(contains(refused(offering(tool), kChatMl),
                 "\"tools\" are left out by the chat template 'chatml'"));
  CHECK(contains(learned_of_row(offering("[]"), false), "Yo<|im_end|>"));
  // Where there are none, nothing is missing.
  CHECK(contains(learned_of_row(R"({"messages": [{"role": "user", "content": "Hi"}, )"
                                R"({"role": "assistant", "content": "Yo", "tool_calls": []}]})",
                                false),
                 "Yo<|im_end|>"));
}

TEST_CASE("a role that is nearly one that is learned is a slip") {
  const auto row = [](const char* role) {
    return str(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": ")", role,
               R"(", "content": "Yo"}, {"role": "user", "content": "Hi"},)",
               R"( {"role": "assistant", "content": "Ho"}]})");
  };
  for (const char* slip : {"assitant", "Assistant"}) {
    CHECK(contains(
        refusal(ErrorKind::kMalformed, [&] { learned_of_row(row(slip), false); }),
        str("message 2 has the role '", slip, "', which is not learned; did you mean assistant?")));
  }
  CHECK(contains(learned_of_row(row("tool"), false), "Ho<|im_end|>"));
}

TEST_CASE("rows without anything to learn are no data") {
  const auto tokenizer = character_tokenizer();
  const std::string nothing = "{\"prompt\": \"ab\", \"completion\": \"\"}\n";
  std::string rows = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n";
  DataOptions options = options_for(Format::kJsonl, write(nothing));
  options.seq = 8;
  options.add_eos = false;
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options, {tokenizer.get()}); }),
                 "data.jsonl: has nothing to learn"));
  for (int i = 0; i < 9; ++i) rows += nothing;
  options.paths = {write(rows)};
  options.eval_fraction = 0.1;
  options.seed = 1;  // takes one of the nine for evaluation
  const Data data = open_data(options, {tokenizer.get()});
  CHECK(data.train->samples() == 1);
  CHECK(data.eval == nullptr);
  options.eval_fraction.reset();
  options.eval_paths = {write(nothing)};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options, {tokenizer.get()}); }),
                 "data.jsonl: has nothing to evaluate on"));
}

TEST_CASE("ShareGPT's conversations and Alpaca's instructions are learned like messages") {
  const char* messages = R"({"messages": [{"role": "system", "content": "Be"},
      {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})";
  const char* shared = R"({"id": "x", "conversations": [{"from": "system", "value": "Be"},
      {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]})";
  const auto one_line = [](std::string text) { return std::erase(text, '\n'), text; };
  for (const bool all : {false, true}) {
    CHECK(learned_of_row(one_line(shared), all) == learned_of_row(one_line(messages), all));
  }
  CHECK(contains(learned_of_row(one_line(shared), false), "Yo<|im_end|>"));
  // The other spelling in either list, and both in one, null being nothing.
  for (const char* row :
       {R"({"conversations": [{"role": "system", "content": "Be"},
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})",
        R"({"messages": [{"from": "system", "value": "Be"}, {"from": "user", "value": "Hi"},
            {"from": "assistant", "value": "Yo"}]})",
        R"({"conversations": [{"from": "system", "value": "Be", "weight": 1},
            {"role": "human", "content": [{"type": "text", "text": "Hi"}]},
            {"from": null, "value": null, "role": "gpt", "content": "Yo"}]})",
        R"({"messages": [{"role": "system", "content": "Be"},
            {"role": "human", "content": "Hi"}, {"from": "gpt", "content": "Yo"}]})"}) {
    for (const bool all : {false, true}) {
      INFO(row);
      CHECK(learned_of_row(one_line(row), all) == learned_of_row(one_line(messages), all));
    }
  }
  const std::string asked = R"({"messages": [{"role": "user", "content": "Add\n\n1 2"},)"
                            R"( {"role": "assistant", "content": "3"}]})";
  const std::string bare = R"({"messages": [{"role": "user", "content": "Add"},)"
                           R"( {"role": "assistant", "content": "3"}]})";
  for (const bool all : {false, true}) {
    CHECK(learned_of_row(R"({"instruction": "Add", "input": "1 2", "output": "3"})", all) ==
          learned_of_row(asked, all));
    for (const char* input : {"", R"("input": "", )", R"("input": null, )"}) {
      CHECK(learned_of_row(str(R"({"instruction": "Add", )", input, R"("output": "3"})"), all) ==
            learned_of_row(bare, all));
    }
  }
}

TEST_CASE("contents in parts are learned as one text, and other parts than texts refused") {
  const auto learned = [](const std::string& content) {
    return learned_of_row(str(R"({"messages": [{"role": "user", "content": )", content,
                              R"(}, {"role": "assistant", "content": "Yo"}]})"),
                          true);
  };
  CHECK(learned(R"([{"type": "text", "text": "Hi"}])") == learned(R"("Hi")"));
  CHECK(learned(R"([{"type": "text", "text": "Hi"}, {"text": "you", "type": "text"}])") ==
        learned(R"("Hi\nyou")"));
  const auto refused = [&](const std::string& content) {
    return refusal(ErrorKind::kMalformed, [&] { learned(content); });
  };
  CHECK(contains(refused(R"([{"type": "text", "text": "Hi"}, {"type": "image_url"}])"),
                 "line 1, column 76: part 2 of the content is of type 'image_url', expected "
                 "{\"type\": \"text\", \"text\": …}: only text is read"));
  CHECK(contains(refused(R"(["Hi"])"), "part 1 of the content is the string 'Hi', expected"));
  CHECK(contains(refused(R"([{"type": "text"}])"), "\"text\" is nothing, expected a string"));
  CHECK(contains(refused("[]"), "\"content\" is an array of 0, expected a string"));
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
  CHECK(learned_of(batch, *tokenizer) == ".cd");
  open_stream(options, Split::kTrain, {tokenizer.get(), nullptr, 4})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".cd<end>");
  options.add_eos = false;
  open_stream(options, Split::kTrain, {tokenizer.get(), nullptr, 4})->next(batch);
  CHECK(learned_of(batch, *tokenizer) == ".cd");
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

TEST_CASE("a completion is learned behind a prompt that ends in a space") {
  for (const auto kind :
       {text::TokenizerKind::kByteLevelBpe, text::TokenizerKind::kSentencePieceBpe}) {
    const auto tokenizer = character_tokenizer(kind);
    INFO(tokenizer->kind());
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"one day ", "the cat"}, {"one day  ", "the cat"}, {"one day ", " the cat"},
        {" ", "the cat"},        {"Q: 2+2= ", "4"},        {"one d", "ay"}};
    for (const auto& [prompt, completion] : rows) {
      INFO(quoted(prompt) << " " << quoted(completion));
      DataOptions options = options_for(
          Format::kJsonl, write(io::Json{{"prompt", prompt}, {"completion", completion}}.dump()));
      options.seq = 32;
      options.add_bos = false;
      Batch batch;
      open_stream(options, Split::kTrain, {tokenizer.get(), nullptr})->next(batch);
      // The prompt's tokens are those that the model is given when it is asked, and behind them the
      // completion is learned, both together being the text.
      const auto ids = testing::field(batch, "tokens");
      const auto targets = testing::field(batch, "targets");
      const auto asked = tokenizer->encode(prompt, {.add_special = false});
      REQUIRE(asked.size() < ids.size());
      CHECK(std::equal(asked.begin(), asked.end(), ids.begin()));
      const auto is_learned = [](int32_t id) { return id != kIgnored; };
      const auto first = std::find_if(targets.begin(), targets.end(), is_learned);
      CHECK(first - targets.begin() == static_cast<int64_t>(asked.size()) - 1);
      const auto eos = std::find(first, targets.end(), *tokenizer->special_ids().eos);
      REQUIRE(eos != targets.end());
      CHECK(std::all_of(first, eos, is_learned));
      std::vector<int32_t> all = asked;
      all.insert(all.end(), first, eos);
      CHECK(tokenizer->decode(all) == prompt + completion);
    }
  }
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

TEST_CASE("a message with the weight 0 is read but not learned") {
  const auto row = [](const std::string& first, const std::string& second) {
    return str(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant",)",
               R"( "content": "Yo", "weight": )", first,
               R"(}, {"role": "user", "content": "Bye"},)",
               R"( {"role": "assistant", "content": "Ok", "weight": )", second, "}]}");
  };
  const auto learned = [&](const std::string& first, const std::string& second) {
    std::string text = learned_of_row(row(first, second), false);
    std::erase(text, '.');
    return text;
  };
  CHECK(learned("1", "1.0") == "Yo<|im_end|>Ok<|im_end|>");
  CHECK(learned("0", "null") == "Ok<|im_end|>");
  CHECK(learned("1", "0") == "Yo<|im_end|>");
  const std::string rest = learned_of_row(row("0", "1"), true);  // all but that message
  CHECK(contains(rest, "user\nHi<|im_end|>\n<|im_start|>assistant\n..."));
  CHECK(contains(rest, "assistant\nOk<|im_end|>"));
  const auto refused = [](const std::string& text, const std::string& chat_template) {
    return refusal(ErrorKind::kMalformed, [&] { learned_of_row(text, false, chat_template); });
  };
  CHECK(contains(refused(row("0", "0"), kChatMl), "(assistant) has another weight than 0; there"));
  CHECK(
      contains(refused(row("1", "0.5"), kChatMl), "\"weight\" is the number 0.5, expected 0 or 1"));
  // Blocks of a template mark the answers of both.
  const std::string marks =
      "{{ messages | length }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
      "{% else %}{% generation %}{{ m.content | upper }}{% endgeneration %}{% endif %}{% endfor %}";
  CHECK(contains(learned_of_row(row("1", "1"), false, marks), "YO...OK"));
  CHECK(contains(refused(row("0", "1"), marks), "cannot be found in what the chat template"));
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

TEST_CASE("what was said is found with the white space around it that a template keeps") {
  const auto tokenizer = character_tokenizer();
  const std::string row =
      R"({"messages": [{"role": "user", "content": "Hi \n"},)"
      R"( {"role": "assistant", "content": " Yo\n"}, {"role": "user", "content": "  Bye"},)"
      R"( {"role": "assistant", "content": "Ok"}]})";
  // As DeepSeek's: the prompt ends with what an answer does not begin with.
  const std::string
      begin = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content",
      end =
          "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>"
          "{% endif %}";
  const auto learned = [&](const std::string& role, const std::string& filter) {
    const auto chat = text::ChatTemplate::parse(begin + filter + end, "thinking");
    DataOptions options = options_for(Format::kJsonl, write(row));
    options.seq = 200;
    options.learn_roles = {role};
    Batch batch;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat})->next(batch);
    std::string text = learned_of(batch, *tokenizer);
    std::erase(text, '.');
    return text;
  };
  CHECK(learned("assistant", "") == " Yo\n<|im_end|>Ok<|im_end|>");
  CHECK(learned("user", "") == "Hi \n<|im_end|>  Bye<|im_end|>");
  CHECK(learned("assistant", " | trim") == "Yo<|im_end|>Ok<|im_end|>");
  CHECK(learned("user", " | trim") == "Hi<|im_end|>Bye<|im_end|>");
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
  CHECK(learned_of(batch, *tokenizer) == ".B<|im_end|>");
}

TEST_CASE("a message that the template leaves out is refused") {
  const auto tokenizer = character_tokenizer();
  const auto chat = text::ChatTemplate::parse(
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<|im_start|>{{ m.role }}\n"
      "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}"
      "<|im_start|>assistant\n{% endif %}",
      "two roles");
  const auto learn = [&](const std::string& message, bool all) {
    DataOptions options = options_for(
        Format::kJsonl, write(str(R"({"messages": [{"role": "user", "content": "a"}, )", message,
                                  R"({"role": "assistant", "content": "b"}]})")));
    options.seq = 64;
    options.learn_all = all;
    open_stream(options, Split::kTrain, {tokenizer.get(), &chat});
  };
  for (const bool all : {false, true}) {
    learn("", all);
    learn(R"({"role": "system", "content": "c"}, )", all);  // a matter of taste
    learn(R"({"role": "tool", "content": ""}, )", all);
    const std::string why = refusal(ErrorKind::kMalformed,
                                    [&] { learn(R"({"role": "tool", "content": "c"}, )", all); });
    CHECK(contains(why,
                   "data.jsonl: line 1, column 1: message 2 ('tool') is left out by the chat "
                   "template 'two roles'"));
  }
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
