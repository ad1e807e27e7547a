#include "lib/base/testing.h"
