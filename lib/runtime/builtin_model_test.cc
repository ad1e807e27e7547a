// The built-in model, asked what it was not trained on: the held-out wordings of its corpus.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/runtime/generation/session.h"

namespace lumen::runtime {
namespace {

struct Question {
  std::string text;
  std::vector<std::string> facts;  // one of them must be in the answer
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "a | b" → "a", "b".
std::vector<std::string> alternatives(const std::string& line) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(" | ", begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 3;
  }
  return parts;
}

// The held-out questions of all families.
std::vector<Question> held_out_questions() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(lumen::testing::source_path("recipes/lumen-tiny"))) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Question> all;
  for (const auto& path : files) {
    std::ifstream file(path);
    std::vector<std::string> held_out;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("H: ")) held_out.push_back(line.substr(3));
      if (!line.starts_with("F: ")) continue;
      for (std::string& text : held_out) {
        all.push_back({std::move(text), alternatives(line.substr(3))});
      }
      held_out.clear();
    }
  }
  return all;
}

}  // namespace

// What recipes/lumen-tiny.toml states, less what another machine's rounding or a sample may change.
constexpr double kLeastShare = 0.8;

TEST_CASE("the built-in model answers most held-out questions with the right fact") {
  const std::vector<Question> questions = held_out_questions();
  REQUIRE(questions.size() >= 1000);
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/builtin/lumen-tiny.gguf");
  options.sampling.temperature = 0;
  Session session = load_session(options);
  Generator generator(*session.model, session.format.tokenizer());
  // All of them with LUMEN_SLOW_TESTS, otherwise every eighth.
  const size_t stride = std::getenv("LUMEN_SLOW_TESTS") ? 1 : 8;
  size_t asked = 0, right = 0;
  std::string wrong;
  for (size_t i = 0; i < questions.size(); i += stride) {
    const auto prompt = session.format.encode(session.format.render({{"user", questions[i].text}}));
    Sampler sampler(resolve_sampling(options.sampling, {}), session.model->vocab());
    GenerationOptions generation = generation_options(options, session);
    generation.max_tokens = 100;
    const auto result =
        generator.generate(prompt, sampler, generation, false, [](std::string_view) {});
    const std::string answer = lower(result.text);
    const bool has_fact = std::any_of(
        questions[i].facts.begin(), questions[i].facts.end(),
        [&](const std::string& fact) { return answer.find(fact) != std::string::npos; });
    ++asked;
    right += has_fact;
    if (!has_fact) wrong += str("\n", questions[i].text, " → ", result.text);
  }
  INFO(right << " of " << asked << " right; wrong:" << wrong);
  CHECK(static_cast<double>(right) >= kLeastShare * static_cast<double>(asked));
}

// A model of two million parameters errs in some: few of these subjects are in its corpus.
TEST_CASE("asked something else, the built-in model says what it is") {
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/builtin/lumen-tiny.gguf");
  options.sampling.temperature = 0;
  Session session = load_session(options);
  Generator generator(*session.model, session.format.tokenizer());
  const std::vector<std::string> questions = {"What is the capital of Peru?",
                                              "write me a poem about the sea",
                                              "Who painted the Mona Lisa?",
                                              "how many planets are there",
                                              "translate good morning into spanish",
                                              "what should i cook tonight",
                                              "who is the president of france",
                                              "tell me about the roman empire",
                                              "what is photosynthesis",
                                              "how do i get from berlin to munich",
                                              "write a python function that sorts a list",
                                              "what is the meaning of life",
                                              "recommend me a good book",
                                              "how old is the universe",
                                              "when did world war two end",
                                              "solve x + 3 = 7",
                                              "what is the price of gold",
                                              "why do cats purr",
                                              "summarize the plot of hamlet",
                                              "which team won the champions league"};
  size_t refused = 0;
  std::string answered;
  for (const std::string& question : questions) {
    const auto prompt = session.format.encode(session.format.render({{"user", question}}));
    Sampler sampler(resolve_sampling(options.sampling, {}), session.model->vocab());
    GenerationOptions generation = generation_options(options, session);
    generation.max_tokens = 100;
    const auto result =
        generator.generate(prompt, sampler, generation, false, [](std::string_view) {});
    if (lumen::testing::contains(lower(result.text), "small built-in model")) {
      ++refused;
    } else {
      answered += str("\n", question, " → ", result.text);
    }
  }
  INFO("answered:" << answered);
  CHECK(static_cast<double>(refused) >= kLeastShare * static_cast<double>(questions.size()));
}

}  // namespace lumen::runtime
