"""Operations and bytes of operators, counted"""
