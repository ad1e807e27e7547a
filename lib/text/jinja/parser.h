// Tokens to a Template.
#pragma once

#include "lib/text/chat_template.h"
#include "lib/text/jinja/ast.h"

namespace lumen::text::jinja {

// Parses `source`, which is valid UTF-8. Throws SyntaxError (lexer.h).
Template parse_template(std::string name, std::string source, const ChatTemplate::Syntax& syntax);

}  // namespace lumen::text::jinja
