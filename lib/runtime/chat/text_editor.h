// A text in the user's own editor.
#pragma once

#include <string>

#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {

// What the user makes of `text` in the editor that $VISUAL, else $EDITOR, names (a command of the
// shell), without the newlines at its end. It has the terminal meanwhile; Ctrl-C is its own. Throws
// Error: kUsage if no editor is named or standard input or output is no terminal; kProgramFailed if
// it fails or a signal ended it; kMalformed if the text is longer than a prompt may be;
// kCannotCreate, kResource, kIo.
std::string edit_text(const std::string& text, SignalWatch& signals);

}  // namespace lumen::runtime
