// SPDX-License-Identifier: BSL-1.0
//
// A locale with a decimal comma and points between thousands, on machines where none is installed too.
#pragma once

#include <stdlib.h>  // mkdtemp, setenv, unsetenv

#include <clocale>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <locale>
#include <string>

namespace gradus_test {

/// While it lives, the functions of C write 1,50 and the streams of C++ 1.234,5. The file that it gives to setlocale is
/// what localedef would compile: glibc's LC_NUMERIC.
class decimal_comma {
 public:
  decimal_comma() {
    std::string folder = (std::filesystem::temp_directory_path() / "gradus_comma_XXXXXX").string();
    folder_ = mkdtemp(folder.data());
    std::filesystem::create_directory(folder_ / "comma");
    const std::uint32_t head[] = {0x20031115U ^ static_cast<unsigned>(LC_NUMERIC), 6, 32, 34, 36, 40, 44, 48};
    std::string content{reinterpret_cast<const char*>(head), sizeof(head)};
    content += std::string(",\0.\0\3\0\0\0,\0\0\0.\0\0\0UTF-8\0", 22);
    std::ofstream{folder_ / "comma" / "LC_NUMERIC", std::ios::binary} << content;
    setenv("LOCPATH", folder_.c_str(), 1);
    std::locale::global(std::locale{std::locale::classic(), new with_comma});
    for (const char* name : {"comma", "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
      if (std::setlocale(LC_NUMERIC, name) != nullptr) {
        break;
      }
    }
  }
  decimal_comma(const decimal_comma&) = delete;
  decimal_comma& operator=(const decimal_comma&) = delete;
  ~decimal_comma() {
    std::setlocale(LC_NUMERIC, "C");
    std::locale::global(std::locale::classic());
    unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }

  /// False where the C library has no such locale.
  [[nodiscard]] static bool holds() { return *std::localeconv()->decimal_point == ','; }

 private:
  struct with_comma final : std::numpunct<char> {
   protected:
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::filesystem::path folder_;
};

}  // namespace gradus_test
