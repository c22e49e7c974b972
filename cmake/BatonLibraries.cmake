# The outside libraries. Each is linked by the one folder that knows it.
include(CheckSymbolExists)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(PROTOBUFC REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(JSONC REQUIRED IMPORTED_TARGET json-c)
pkg_check_modules(CYAML REQUIRED IMPORTED_TARGET libcyaml)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::XXHASH) # some builds of it choose the instruction set at run time
check_symbol_exists(XXH3_64bits_dispatch xxh_x86dispatch.h XXHASH_DISPATCHES)
unset(CMAKE_REQUIRED_LIBRARIES)
pkg_check_modules(LIBEVENT REQUIRED IMPORTED_TARGET libevent_core)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl)
pkg_check_modules(LIBCURL REQUIRED IMPORTED_TARGET libcurl>=7.87) # CURLOPT_QUICK_EXIT
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_C protoc-c REQUIRED)

# gRPC core: only -lgrpc -lgpr (its .pc file also names sixty static dependencies).
find_path(GRPC_INCLUDE grpc/grpc.h REQUIRED)
add_library(baton_ext_grpc INTERFACE)
target_include_directories(baton_ext_grpc INTERFACE ${GRPC_INCLUDE})
target_link_libraries(baton_ext_grpc INTERFACE grpc gpr)

# UCX: the system's (1.13 in Debian 12), or the one of the CUDA wheel from PyPI.
add_library(baton_ext_ucx INTERFACE)
if(BATON_UCX_ROOT)
  target_include_directories(baton_ext_ucx SYSTEM INTERFACE ${BATON_UCX_ROOT}/include)
  target_link_libraries(baton_ext_ucx INTERFACE ${BATON_UCX_ROOT}/lib/libucp.so ${BATON_UCX_ROOT}/lib/libucs.so)
  target_link_options(baton_ext_ucx INTERFACE -Wl,-rpath,${BATON_UCX_ROOT}/lib)
else()
  pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
  target_link_libraries(baton_ext_ucx INTERFACE ucp ucs)
endif()
