// Models: how a tokenizer turns one word into token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lumen::text {

// Immutable and thread-safe; what a call wants to remember between words is in a State.
class Model {
 public:
  class State {
   public:
    virtual ~State() = default;
  };

  virtual ~Model() = default;
  // Work space for one thread, to be passed to tokenize; null if none is needed.
  virtual std::unique_ptr<State> make_state() const { return nullptr; }
  // Appends the ids of `word`, which is not empty.
  virtual void tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const = 0;
};

}  // namespace lumen::text
