// Tables as data sets. For this room only.
#pragma once

#include "lib/data/data.h"

namespace lumen::data {

// CSV files (csv.h), with one header row unless the options say otherwise: numbers become features
// as they are or standardised, columns with text one feature per distinct text or nothing, one
// column the label. A cell that is empty is a bad row. Throws as open_data.
Data open_table(const DataOptions& options);

}  // namespace lumen::data
