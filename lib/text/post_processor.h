// Post-processors: the control tokens a tokenizer.json puts around the text.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/io/json.h"

namespace lumen::text {

// Templates applied one after the other. Pairs of texts are not supported and their templates not
// read.
class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  // From the JSON value "post_processor", or null. Throws Error(kUnsupported) for an unknown type,
  // kMalformed for wrong members.
  explicit PostProcessor(const io::Json& json) { parse(json); }

  // Adds the control tokens to `ids`, which hold one text.
  void apply(std::vector<int32_t>& ids, bool add_special) const;
  // Whether the text stands once among them, as it is.
  bool keeps_text() const;

 private:
  struct Piece {
    bool is_text = false;
    std::vector<int32_t> ids;  // of a control token
  };
  using Template = std::vector<Piece>;

  void parse(const io::Json& json);
  void parse_template(const io::Json& json);
  void add_frame(const io::Json& json);

  std::vector<Template> templates_;
};

}  // namespace lumen::text
