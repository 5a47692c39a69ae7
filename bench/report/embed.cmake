# SPDX-License-Identifier: BSL-1.0
#
# Makes a header of the files of the page: cmake -DFOLDER=page -DOUTPUT=page_parts.hpp -P embed.cmake
set(script "")
foreach(name data timeline_draw timeline charts tables main)
  file(READ "${FOLDER}/${name}.js" part)
  string(APPEND script "${part}")
endforeach()
file(READ "${FOLDER}/style.css" style)
file(READ "${FOLDER}/frame.html" frame)
set(header "// Made by embed.cmake from page/: do not edit.\n#pragma once\n\n#include <string_view>\n\n")
string(APPEND header "namespace gradus::report::page_parts {\n")
foreach(part frame style script)
  string(APPEND header "inline constexpr std::string_view ${part} = R\"embedded(${${part}})embedded\";\n")
endforeach()
string(APPEND header "}  // namespace gradus::report::page_parts\n")
file(WRITE "${OUTPUT}" "${header}")
