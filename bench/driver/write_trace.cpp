// SPDX-License-Identifier: BSL-1.0
//
// The trace file of a measurement.
#include "write_trace.hpp"

#ifdef GRADUS_BENCH_WITH_GZIP
#include "gradus/trace/gzip.hpp"
#endif

namespace driver {

void write_trace(program::output_file& output, const gradus::trace::timeline& all,
                 const gradus::trace::program_properties& properties) {
  const auto write_to = [&](auto&& file) {
    gradus::trace::write_chrome(file, all, properties);
    file.close();
    output.commit();
  };
#ifdef GRADUS_BENCH_WITH_GZIP
  if (output.path().ends_with(".gz")) {
    return write_to(gradus::trace::gzip_sink{output.unfinished()});
  }
#endif
  write_to(gradus::trace::file_sink{output.unfinished()});
}

}  // namespace driver
