// Thinking blocks: what is thought and what is said, however the text is cut into pieces.
#include "lib/runtime/generation/thoughts.h"

#include <string>
#include <utility>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"
#include "lib/runtime/generation/generation.h"

namespace lumen::runtime {
namespace {

using Parts = std::pair<std::string, std::string>;  // shown, thought

Parts parts_of(const std::string& text, ThinkingTags open = {}) {
  Parts whole;
  for (size_t size = 1; size <= text.size() + 1; ++size) {
    ThoughtReader reader(open);
    Parts parts;
    for (size_t at = 0; at < text.size(); at += size) {
      reader.push(std::string_view(text).substr(at, size), parts.first, parts.second);
    }
    reader.finish(parts.first, parts.second);
    if (size > 1) CHECK(parts == whole);
    whole = parts;
  }
  return whole;
}

TEST_CASE("a block at the beginning is thought, what follows is said") {
  CHECK(parts_of("<think>\nhm <b>\n</think>\n\nYes. <think>") ==
        Parts{"Yes. <think>", "\nhm <b>\n"});
  CHECK(parts_of(" \n[THINK]a[/THINK] b ") == Parts{"b ", "a"});
  CHECK(parts_of("<thinking>a</think></thinking>b") == Parts{"b", "a</think>"});
  CHECK(parts_of("<think></think>") == Parts{"", ""});
}

TEST_CASE("text without such a block stays as it is") {
  for (const std::string text :
       {"Use <think> and </think>.", " <thin>", "<", "", "  \n", "a<think>b</think>"}) {
    CHECK(parts_of(text) == Parts{text, ""});
  }
}

TEST_CASE("a block that the prompt has opened, or that is never closed") {
  const ThinkingTags open = {"<think>", "</think>"};
  CHECK(parts_of("hm\n</think>\n\nYes.", open) == Parts{"Yes.", "hm\n"});
  CHECK(parts_of("hm </thi", open) == Parts{"", "hm </thi"});
  CHECK(parts_of("<think>hm") == Parts{"", "hm"});
}

TEST_CASE("an answer without its thoughts") {
  const auto say = [](const std::string& script, bool hide, const std::string& prompt = "hi") {
    auto tokenizer = std::make_shared<testing::ByteTokenizer>();
    testing::FakeModel model(3000, {script});
    Generator generator(model, tokenizer);
    Sampler sampler({.temperature = 0}, model.vocab());
    GenerationOptions options{std::nullopt, {"stop"}, {testing::ByteTokenizer::kEos}};
    options.hide_thinking = hide;
    std::string heard;
    GenerationResult result =
        generator.generate(tokenizer->encode(prompt, {}), sampler, options, false,
                           [&](std::string_view piece) { heard += piece; });
    CHECK(heard == result.text);
    return result;
  };
  const std::string script = "<think>\nto stop or not</think>\n\nYes. stop";
  const GenerationResult hidden = say(script, true);
  CHECK(hidden.text == "Yes. ");
  CHECK(hidden.thinking == "\nto stop or not");
  CHECK(hidden.stop_reason == StopReason::kStop);
  const GenerationResult shown = say(script, false);
  CHECK(shown.text == "<think>\nto ");
  CHECK_FALSE(shown.thinking.has_value());
  const GenerationResult opened = say("hm</think>\nYes", true, "q<think>\n");
  CHECK(opened.text == "Yes");
  CHECK(opened.thinking == "hm");
}

TEST_CASE("thoughts go to a sink of their own, and the text is what it is without") {
  const auto say = [](const std::string& script, const std::string& prompt = "hi") {
    auto tokenizer = std::make_shared<testing::ByteTokenizer>();
    testing::FakeModel model(3000, {script});
    Generator generator(model, tokenizer);
    Sampler sampler({.temperature = 0}, model.vocab());
    GenerationOptions options{std::nullopt, {"stop"}, {testing::ByteTokenizer::kEos}};
    Parts heard;
    std::string all;
    options.thought_sink = [&](std::string_view piece) {
      heard.second += piece;
      all += piece;
    };
    const GenerationResult result = generator.generate(tokenizer->encode(prompt, {}), sampler,
                                                       options, false, [&](std::string_view piece) {
                                                         heard.first += piece;
                                                         all += piece;
                                                       });
    CHECK(all == result.text);
    return heard;
  };
  // Until a tag is whole, it may be text.
  CHECK(say("<think>hm</think>\n\nYes. <think>") == Parts{"<think\n\nYes. <think>", ">hm</think>"});
  CHECK(say("hm st</think>Yes stop", "q<think>\n") == Parts{"Yes ", "hm st</think>"});
  CHECK(say("hm stop</think>Yes", "q<think>\n") == Parts{"", "hm "});
  CHECK(say("Yes <think>no</think>") == Parts{"Yes <think>no</think>", ""});
}

}  // namespace
}  // namespace lumen::runtime
