# Writes the bytes of INPUT as a C array NAME[] with NAME_size into OUTPUT.
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "extern const unsigned char ${NAME}[];\nextern const unsigned long ${NAME}_size;\nconst unsigned char ${NAME}[] = {${bytes}};\nconst unsigned long ${NAME}_size = ${size};\n")
