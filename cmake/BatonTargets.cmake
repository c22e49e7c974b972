# Flags for all targets, and the two functions that make a folder into a target.
add_library(baton_flags INTERFACE)
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
target_compile_options(baton_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                       -fno-strict-aliasing -ffp-contract=off -fvisibility=hidden)
target_compile_definitions(baton_flags INTERFACE _GNU_SOURCE BATON_VERSION="${PROJECT_VERSION}")
if(BATON_WERROR)
  target_compile_options(baton_flags INTERFACE -Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  target_compile_definitions(baton_flags INTERFACE BATON_RELEASE)
endif()
# Hardening of what a release builds, generated code too: an overflow that gcc can see or guard ends the process, every address is
# random, and the tables of library calls are read-only. Only the loops of kernels have no guards (kernels/CMakeLists.txt). The
# sanitizers of the other presets check more, and clash with FORTIFY. tests/hardened.py reads all of it from a program.
set(BATON_HARDEN_COMPILE -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND BATON_HARDEN_COMPILE -fcf-protection)
endif()
set(BATON_HARDEN_LINK -pie -Wl,-z,relro -Wl,-z,now)
if(BATON_HARDEN AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT BATON_SANITIZE)
  add_compile_options(${BATON_HARDEN_COMPILE})
  add_link_options(${BATON_HARDEN_LINK})
endif()
if(BATON_SANITIZE)
  target_compile_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
  if(BATON_SANITIZE MATCHES address)
    # UBSan leaves 150,000 addresses in a program, which every start of a random place would have to relocate.
    target_link_options(baton_flags INTERFACE -no-pie)
  endif()
endif()
if(BATON_SANITIZE MATCHES thread OR BATON_COVERAGE)
  # What these two insert hides from gcc that an output is written whenever a call succeeds.
  target_compile_options(baton_flags INTERFACE -Wno-maybe-uninitialized)
endif()
if(BATON_FUZZ)
  target_compile_options(baton_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# baton_coverage(TARGET): counts what runs of its sources; of the product's alone, nobody asks what ran of the tests. Threads may lose
# a count to each other, which a table of lines bears: with atomic counters attention's tests take five times as long.
function(baton_coverage target)
  if(BATON_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage -fprofile-update=single)
    target_link_options(${target} PUBLIC --coverage)
  endif()
endfunction()

# baton_library(NAME [FOLDERS sub-folders...] DEPENDS other targets...): every .c of this folder and of the named sub-folders, except
# main.c, is target baton_NAME.
function(baton_library name)
  cmake_parse_arguments(LIB "" "" "FOLDERS;DEPENDS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  foreach(folder ${LIB_FOLDERS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.c)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  if(sources)
    add_library(baton_${name} STATIC ${sources})
    target_link_libraries(baton_${name} PUBLIC baton_flags ${LIB_DEPENDS})
    baton_coverage(baton_${name})
  else()
    add_library(baton_${name} INTERFACE)
    target_link_libraries(baton_${name} INTERFACE baton_flags ${LIB_DEPENDS})
  endif()
endfunction()

# baton_program(NAME DEPENDS ...): main.c of this folder is program NAME in build/<preset>/bin.
function(baton_program name)
  cmake_parse_arguments(PROG "" "" "DEPENDS" ${ARGN})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/main.c)
    add_executable(${name} main.c)
    target_link_libraries(${name} PRIVATE baton_flags ${PROG_DEPENDS})
    baton_coverage(${name})
  endif()
endfunction()
